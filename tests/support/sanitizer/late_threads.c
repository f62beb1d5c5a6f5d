/*
 * Threads that end while the process does, in the programs of an AddressSanitizer build.
 *
 * gRPC counts its threads as ended a moment before they are. OpenSSL, which cleans up at exit,
 * forgets then what it has for threads, and what such a thread had (904 bytes, its errors) would be
 * reported as lost. So OpenSSL is told not to clean up, and late threads are waited for a moment.
 */
#include <dirent.h>
#include <stdint.h>
#include <unistd.h>

#define NO_ATEXIT UINT64_C(0x80000) /* OPENSSL_INIT_NO_ATEXIT */
#define WAIT_US 100000u             /* threads of Open MPI stay */
#define NAP_US 2000u

/* Where libcrypto is part of the program; else NULL. */
extern int OPENSSL_init_crypto(uint64_t options, const void *settings) __attribute__((weak));

__attribute__((constructor)) static void keep_openssl(void)
{
    if (OPENSSL_init_crypto != NULL)
        (void)OPENSSL_init_crypto(NO_ATEXIT, NULL);
}

static int threads(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *entry; tasks != NULL && (entry = readdir(tasks)) != NULL;)
        n += entry->d_name[0] != '.';
    if (tasks != NULL)
        (void)closedir(tasks);
    return n;
}

/* Before the leak check, which the sanitizer registered first of all. */
__attribute__((destructor)) static void wait_for_threads(void)
{
    for (unsigned waited = 0; threads() > 1 && waited < WAIT_US; waited += NAP_US)
        (void)usleep(NAP_US);
}
