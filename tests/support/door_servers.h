/*
 * Servers with doors on threads of the test: what embps-server --listen is, without its processes.
 * Ends the test when it cannot work.
 */
#ifndef TESTS_SUPPORT_DOOR_SERVERS_H
#define TESTS_SUPPORT_DOOR_SERVERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct door_servers door_servers_t;

typedef struct door_servers_options {
    uint32_t n;        /* servers */
    uint32_t n_guests; /* at a time */
    uint64_t lease_us;
    uint64_t cluster;
    uint64_t memory_bytes;       /* of each */
    const char *instead_of_last; /* told as the address of the last server; NULL: its own */
    const char *folder;          /* of their data, which stays; NULL: one of their own */
    const char *checkpoints;     /* NULL: none */
    const char *resume;
    const char *const *resets; /* [n_resets] as in ps_server_options_t */
    size_t n_resets;
    const char *weights;
    bool read_only;
    uint64_t keep;       /* checkpoints; 0: all */
    uint64_t every_us;   /* one each time that has passed; 0: never */
    const char *tokens;  /* a file of them (proto/rights.h); NULL: none are asked for */
    const char *not_yet; /* why guests have to wait until door_servers_serve; NULL: they need not */
    const uint16_t *ports; /* [n] to listen on; NULL: free ones */
} door_servers_options_t;

#define DOOR_SERVERS_DEFAULT                                                                       \
    {                                                                                              \
        .n = 1, .n_guests = 64, .lease_us = 60000000, .cluster = 0xd00d, .resume = "auto",         \
        .keep = 3, .memory_bytes = UINT64_C(32) << 20                                              \
    }

door_servers_t *door_servers_start(const door_servers_options_t *options);
/* After not_yet. */
void door_servers_serve(door_servers_t *servers);
/* Ends them as SIGTERM would. */
void door_servers_stop(door_servers_t *servers);
/* The same, and removes what is newer below checkpoints than `name`, such as the last one that they
 * make at their end. */
void door_servers_stop_behind(door_servers_t *servers, const char *checkpoints, const char *name);

/* "127.0.0.1:PORT" of a server, and its port. Borrowed. */
const char *door_servers_address(const door_servers_t *servers, uint32_t server);
uint16_t door_servers_port(const door_servers_t *servers, uint32_t server);

#endif
