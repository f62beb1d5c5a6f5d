/*
 * Doors are opened first, so that every server can be told where the others listen; then servers,
 * each with a data folder of its own, a pool of its own and a thread that runs it.
 */
#include "tests/support/door_servers.h"

#include "common/file.h"
#include "proto/grpc/grpc_server.h"
#include "proto/saved_folder.h"
#include "ps/server.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL_BYTES ((size_t)16 << 20)
#define MOST_MAIL 64u

typedef struct mail {
    ps_round_word_t word;
    uint32_t from;
} mail_t;

typedef struct door_server {
    psp_pool_t *pool;
    psp_transport_t *door;
    ps_server_t *server;
    pthread_t thread;
    psc_status_t run;
    psc_error_t error;
    struct door_servers *home;
    ps_fellows_t fellows;
    mail_t mail[MOST_MAIL]; /* words of the others that it has not heard yet */
    size_t n_mail;
} door_server_t;

struct door_servers {
    char *own_folder;
    uint32_t n;
    door_server_t *all;
    const char **addresses;
    pthread_mutex_t mutex; /* of the mail of all */
};

/* Both of ps_fellows_t. */
static void tell(void *context, uint32_t server, const ps_round_word_t *word)
{
    door_server_t *own = context;
    door_servers_t *home = own->home;
    door_server_t *to = &home->all[server];
    assert_int_equal(pthread_mutex_lock(&home->mutex), 0);
    assert_true(to->n_mail < MOST_MAIL);
    to->mail[to->n_mail++] = (mail_t){.word = *word, .from = (uint32_t)(own - home->all)};
    assert_int_equal(pthread_mutex_unlock(&home->mutex), 0);
}

static bool hear(void *context, ps_round_word_t *word_out, uint32_t *server_out)
{
    door_server_t *own = context;
    assert_int_equal(pthread_mutex_lock(&own->home->mutex), 0);
    const bool any = own->n_mail != 0;
    if (any) {
        *word_out = own->mail[0].word;
        *server_out = own->mail[0].from;
        memmove(&own->mail[0], &own->mail[1], --own->n_mail * sizeof own->mail[0]);
    }
    assert_int_equal(pthread_mutex_unlock(&own->home->mutex), 0);
    return any;
}

static void *run_server(void *context)
{
    door_server_t *own = context;
    own->run = ps_server_run(own->server, own->door, &own->error);
    return NULL;
}

static void open_door(door_servers_t *servers, uint32_t i, const door_servers_options_t *given)
{
    char listen[32];
    door_server_t *own = &servers->all[i];
    psp_door_options_t options = PSP_DOOR_OPTIONS_DEFAULT;
    (void)snprintf(listen, sizeof listen, "127.0.0.1:%u",
                   given->ports != NULL ? given->ports[i] : 0u);
    options.listen = listen;
    options.tokens = given->tokens;
    options.not_yet = given->not_yet;
    own->error = (psc_error_t)PSC_ERROR_INIT;
    assert_int_equal(psp_pool_create(POOL_BYTES, &own->pool, NULL), PSC_OK);
    if (psp_door_open(&options, own->pool, &own->door, &own->error) != PSC_OK)
        fail_msg("%s", own->error.message);
    servers->addresses[i] = psp_door_address(own->door);
}

door_servers_t *door_servers_start(const door_servers_options_t *options)
{
    door_servers_t *servers = calloc(1, sizeof *servers);
    assert_non_null(servers);
    servers->own_folder = options->folder == NULL ? test_scratch_create() : NULL;
    servers->n = options->n;
    servers->all = calloc(options->n, sizeof *servers->all);
    servers->addresses = calloc(options->n, sizeof *servers->addresses);
    assert_non_null(servers->all);
    assert_non_null(servers->addresses);
    assert_int_equal(pthread_mutex_init(&servers->mutex, NULL), 0);
    for (uint32_t i = 0; i < options->n; i++)
        open_door(servers, i, options);
    if (options->instead_of_last != NULL)
        servers->addresses[options->n - 1] = options->instead_of_last;
    for (uint32_t i = 0; i < options->n; i++) {
        door_server_t *own = &servers->all[i];
        own->home = servers;
        own->fellows = (ps_fellows_t){.context = own, .tell = tell, .hear = hear};
        const ps_server_options_t of_server = {
            .data = options->folder != NULL ? options->folder : servers->own_folder,
            .memory_bytes = options->memory_bytes,
            .cluster = options->cluster,
            .rank = i,
            .n_servers = options->n,
            .pool = own->pool,
            .n_guests = options->n_guests,
            .lease_us = options->lease_us,
            .checkpoints = options->checkpoints,
            .resume = options->resume,
            .resets = options->resets,
            .n_resets = options->n_resets,
            .weights = options->weights,
            .read_only = options->read_only,
            .keep = options->keep,
            .checkpoint_every_us = options->every_us,
            .same_run = true,
            .fellows = options->n != 1 ? &own->fellows : NULL,
            .addresses = servers->addresses};
        if (ps_server_open(&of_server, &own->server, &own->error) != PSC_OK)
            fail_msg("%s", own->error.message);
        assert_int_equal(pthread_create(&own->thread, NULL, run_server, own), 0);
    }
    return servers;
}

void door_servers_serve(door_servers_t *servers)
{
    for (uint32_t i = 0; i < servers->n; i++)
        psp_door_serve(servers->all[i].door);
}

void door_servers_stop(door_servers_t *servers)
{
    for (uint32_t i = 0; i < servers->n; i++)
        ps_server_stop(servers->all[i].server);
    for (uint32_t i = 0; i < servers->n; i++) {
        door_server_t *own = &servers->all[i];
        assert_int_equal(pthread_join(own->thread, NULL), 0);
        if (own->run != PSC_OK)
            fail_msg("server %u: %s", (unsigned)i, own->error.message);
        if (ps_server_close(own->server, false, false, &own->error) != PSC_OK)
            fail_msg("server %u at its end: %s", (unsigned)i, own->error.message);
        psp_transport_destroy(own->door);
        psp_pool_destroy(own->pool);
    }
    (void)pthread_mutex_destroy(&servers->mutex);
    test_scratch_destroy(servers->own_folder);
    free(servers->addresses);
    free(servers->all);
    free(servers);
}

void door_servers_stop_behind(door_servers_t *servers, const char *checkpoints, const char *name)
{
    psp_saved_names_t names;
    door_servers_stop(servers);
    assert_int_equal(psp_saved_list(checkpoints, &names, NULL), PSC_OK);
    for (size_t i = 0; i < names.n; i++) {
        char path[512];
        if (strcmp(names.all[i], name) > 0)
            assert_int_equal(
                psc_file_remove_all(test_path(path, sizeof path, checkpoints, names.all[i]), NULL),
                PSC_OK);
    }
    psp_saved_names_clear(&names);
}

const char *door_servers_address(const door_servers_t *servers, uint32_t server)
{
    return psp_door_address(servers->all[server].door);
}

uint16_t door_servers_port(const door_servers_t *servers, uint32_t server)
{
    const char *colon = strrchr(door_servers_address(servers, server), ':');
    return (uint16_t)strtoul(colon + 1, NULL, 10);
}
