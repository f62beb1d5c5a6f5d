/*
 * What gRPC has to say in a server's process, as lines of its log. Inside proto/grpc/ only.
 */
#ifndef PROTO_GRPC_GRPC_LOG_H
#define PROTO_GRPC_GRPC_LOG_H

#include <stddef.h>

/* From now on, for the whole process, gRPC prints nothing by itself: its errors are warnings of
 * ours, one a minute at most with the number of those in between, and what else GRPC_VERBOSITY lets
 * it say is at the level of debug. Any thread; again has no effect. */
void psp_grpc_log_take(void);

/* What an error of gRPC's says in our words; "" where it is none to anybody. */
void psp_grpc_log_words(const char *message, char *words_out, size_t size);

#endif
