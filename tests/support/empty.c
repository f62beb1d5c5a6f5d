/* A library needs one source; the helpers of the tests stand beside this file. */
#include "common/status.h"
