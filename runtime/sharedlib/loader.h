// Opening a library and finding its symbols.
#ifndef KVFERRY_SHAREDLIB_LOADER_H
#define KVFERRY_SHAREDLIB_LOADER_H

#include <stddef.h>
#include <stdint.h>

// loader_open loads the library at path, a file or a bare name. NULL: why is written to reason.
void *loader_open(const char *path, char *reason, size_t reason_bytes);

// loader_resident is 1 if the library is loaded already.
int loader_resident(const char *path);

void *loader_symbol(void *library, const char *name);

// loader_origin writes the file that the library was loaded from, or nothing.
void loader_origin(void *library, char *path, size_t path_bytes);

enum { SIGNALS = 64 };

// loader_signals notes which signals have a handler that does not run on the alternate stack: 1 at the
// number of each. Go programs abort when such a handler runs on one of their threads.
void loader_signals(uint8_t risky[SIGNALS + 1]);

#endif
