/*
 * dlclose that unloads nothing, linked into the programs of an AddressSanitizer build.
 *
 * Open MPI unloads its components before the leak check runs at exit. What they leaked would then
 * be reported from "<unknown module>", which no suppression can name; kept loaded, they have their
 * names and tests/support/lsan.supp applies.
 */
#include <dlfcn.h>

__attribute__((visibility("default"))) int dlclose(void *handle)
{
    (void)handle;
    return 0;
}
