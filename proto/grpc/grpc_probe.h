/*
 * Whether it is TLS or plain text that a port speaks, to say so when a connection fails: gRPC only
 * says that it failed. Inside proto/grpc/ only.
 */
#ifndef PROTO_GRPC_GRPC_PROBE_H
#define PROTO_GRPC_GRPC_PROBE_H

typedef enum psp_speech {
    PSP_SPEECH_UNKNOWN, /* nobody is there, or says nothing that tells */
    PSP_SPEECH_PLAIN,   /* HTTP/2 in plain text */
    PSP_SPEECH_TLS,
} psp_speech_t;

/* Connects, listens, greets; takes some seconds at most. address: as in psp_grpc_check_address. May
 * ask a name server. Any thread. */
psp_speech_t psp_grpc_probe(const char *address);

#endif
