/* The entries of the initialiser table, one file each. Only init.c and their tests look here. */
#ifndef PS_INIT_INIT_ENTRIES_H
#define PS_INIT_INIT_ENTRIES_H

#include "ps/init/init.h"

extern const ps_init_t ps_init_zeros;
extern const ps_init_t ps_init_uniform;
extern const ps_init_t ps_init_normal;
extern const ps_init_t ps_init_word2vec;
extern const ps_init_t ps_init_constant;
extern const ps_init_t ps_init_truncated_normal;
extern const ps_init_t ps_init_xavier;

/*
 * The p-quantile of the standard normal distribution, 0 < p < 1, to about 1 part in 10^16.
 * The same bits everywhere: +, -, *, / and sqrt alone. Source: Wichura 1988, algorithm AS 241.
 */
double ps_init_normal_quantile(double p);

/* P(|z| < cut) of the standard normal distribution, 0 < cut <= 6, to about 1 part in 10^13; by +,
 * -, * and / alone. Source: Marsaglia 2004, "Evaluating the normal distribution". */
double ps_init_normal_mass(double cut);

#endif
