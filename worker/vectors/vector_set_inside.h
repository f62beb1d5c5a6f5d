/* What the readers of this folder may do to a set and others may not. */
#ifndef WORKER_VECTORS_VECTOR_SET_INSIDE_H
#define WORKER_VECTORS_VECTOR_SET_INSIDE_H

#include "worker/vectors/vector_set.h"

/* Static text. */
void psw_vectors_set_format(psw_vectors_t *vectors, const char *format);

#endif
