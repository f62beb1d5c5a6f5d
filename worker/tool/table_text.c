/*
 * One table of fields for both directions; the lists of parameters stand apart. Whether values make
 * sense is for the server that is asked to make the table. Threads: none here.
 */
#include "worker/tool/table_text.h"

#include "worker/programs/client_error.h"
#include "worker/programs/json_real.h"
#include "worker/tool/address_options.h"
#include "worker/tool/word_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef enum field_kind { TEXT, U32, U64, REAL, TRUTH } field_kind_t;

#define FIELD(kind, name)                                                                          \
    {                                                                                              \
#name, kind, offsetof(embps_table_options_t, name)                                         \
    }

static const struct field {
    const char *name;
    field_kind_t kind;
    size_t offset;
} fields[] = {
    FIELD(U32, dim),
    FIELD(TEXT, init),
    FIELD(TEXT, optimizer),
    FIELD(U64, seed),
    FIELD(TEXT, precision),
    FIELD(TEXT, state_precision),
    FIELD(TRUTH, per_row_steps),
    FIELD(REAL, l2),
    FIELD(REAL, clip_value),
    FIELD(REAL, clip_norm),
    FIELD(TRUTH, has_bounds),
    FIELD(REAL, weight_min),
    FIELD(REAL, weight_max),
    FIELD(TRUTH, has_pad),
    FIELD(U64, pad_id),
    FIELD(U32, admit_after),
    FIELD(TRUTH, admit_shared),
    FIELD(U32, admit_counters),
    FIELD(U64, expire_after),
    FIELD(U64, expire_rare_after),
    FIELD(U32, expire_rare_below),
    FIELD(U32, expire_floor),
    FIELD(TRUTH, expire_dry_run),
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static json_t *write_numbers(const double *values, uint32_t n)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < n; i++)
        (void)json_array_append_new(all, psw_json_real(values[i]));
    return all;
}

static json_t *write_field(const struct field *field, const embps_table_options_t *options)
{
    const void *at = (const char *)options + field->offset;
    char text[24];
    switch (field->kind) {
    case TEXT:
        return json_string(*(const char *const *)at);
    case U32:
        return json_integer(*(const uint32_t *)at);
    case U64:
        (void)snprintf(text, sizeof text, "%" PRIu64, *(const uint64_t *)at);
        return json_string(text);
    case REAL:
        return psw_json_real(*(const double *)at);
    case TRUTH:
        return json_boolean(*(const bool *)at);
    }
    return NULL;
}

json_t *psw_table_text_write(const embps_table_options_t *options)
{
    json_t *object = json_object();
    bool ok = object != NULL;
    for (size_t i = 0; ok && i < N_FIELDS; i++)
        ok = json_object_set_new(object, fields[i].name, write_field(&fields[i], options)) == 0;
    ok =
        ok && json_object_set_new(object, "init_params",
                                  write_numbers(options->init_params, options->n_init_params)) == 0;
    ok = ok && json_object_set_new(
                   object, "optimizer_params",
                   write_numbers(options->optimizer_params, options->n_optimizer_params)) == 0;
    if (ok)
        return object;
    json_decref(object);
    return NULL;
}

static bool read_field(const struct field *field, const json_t *value,
                       embps_table_options_t *options)
{
    void *at = (char *)options + field->offset;
    switch (field->kind) {
    case TEXT:
        *(const char **)at = json_string_value(value);
        return json_is_string(value);
    case U32:
        *(uint32_t *)at = (uint32_t)json_integer_value(value);
        return json_is_integer(value) && json_integer_value(value) >= 0 &&
               json_integer_value(value) <= UINT32_MAX;
    case U64:
        return json_is_string(value) &&
               psw_parse_id(field->name, json_string_value(value), at, NULL) == PSC_OK;
    case REAL:
        *(double *)at = json_number_value(value);
        return json_is_number(value);
    case TRUTH:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value);
    }
    return false;
}

static bool read_numbers(const json_t *array, double values[EMBPS_MAX_PARAMS], uint32_t *n_out)
{
    const size_t n = json_array_size(array);
    if (array != NULL && (!json_is_array(array) || n > EMBPS_MAX_PARAMS))
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);
        if (!json_is_number(value))
            return false;
        values[i] = json_number_value(value);
    }
    *n_out = (uint32_t)n;
    return true;
}

psc_status_t psw_table_text_read(const json_t *object, embps_table_options_t *options_out,
                                 psc_error_t *error)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    const char *bad = json_is_object(object) ? NULL : "object";
    for (size_t i = 0; bad == NULL && i < N_FIELDS; i++) {
        const json_t *value = json_object_get(object, fields[i].name);
        if (value != NULL && !read_field(&fields[i], value, &options))
            bad = fields[i].name;
    }
    if (bad == NULL && !read_numbers(json_object_get(object, "init_params"), options.init_params,
                                     &options.n_init_params))
        bad = "init_params";
    if (bad == NULL && !read_numbers(json_object_get(object, "optimizer_params"),
                                     options.optimizer_params, &options.n_optimizer_params))
        bad = "optimizer_params";
    if (bad != NULL)
        return psc_error_set(error, PSC_CORRUPT, "a table's options: %s is not what it should be",
                             bad);
    *options_out = options;
    return PSC_OK;
}

typedef struct wanted {
    const char *name;
    json_t *object; /* NULL: not seen, or no memory */
    bool seen;
} wanted_t;

static void look(void *context, const char *name, const embps_table_options_t *options,
                 uint64_t n_rows_created)
{
    wanted_t *wanted = context;
    (void)n_rows_created;
    if (strcmp(name, wanted->name) != 0 || wanted->seen)
        return;
    wanted->seen = true;
    wanted->object = psw_table_text_write(options);
}

psc_status_t psw_table_text_find(embps_client_t *client, const char *name, json_t **object_out,
                                 psc_error_t *error)
{
    wanted_t wanted = {.name = name};
    embps_error_t what;
    if (embps_tables(client, look, &wanted, &what) != 0) {
        json_decref(wanted.object);
        return psw_error_import(&what, error);
    }
    if (!wanted.seen)
        return psc_error_set(error, PSC_NOT_FOUND, "there is no table %.80s", name);
    if (wanted.object == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for JSON");
    *object_out = wanted.object;
    return PSC_OK;
}
