/* The options of embps nearest and embps analogy: which vectors, how many words, in which form. */
#include "worker/tool/search_options.h"

const psc_option_t psw_search_option_table[PSW_SEARCH_OPTION_COUNT] = {
    {.name = "vectors",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(psw_search_options_t, vectors),
     .required = true,
     .help = "Vectors in word2vec's text or binary form, GloVe's or fastText's text form."},
    {.name = "top",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(psw_search_options_t, top),
     .min = 1,
     .max = 1000,
     .default_value = "10",
     .help = "How many words to show."},
    {.name = "json",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(psw_search_options_t, json),
     .help = "Print JSON instead of text."},
};
