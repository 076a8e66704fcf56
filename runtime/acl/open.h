// Opening a library and finding its symbols.
#ifndef KVFERRY_ACL_OPEN_H
#define KVFERRY_ACL_OPEN_H

#include "abi.h"

struct acl_symbol {
  const char *name;
  size_t offset; // in struct acl_api
  int required;
};

// acl_symbol gives the symbols one by one, and NULL after the last.
const struct acl_symbol *acl_symbol(size_t index);

// acl_api_new makes an empty table of functions; free it with free.
struct acl_api *acl_api_new(void);

// acl_open loads the library at path, a file or a bare name. NULL: why is written to reason.
// A library is never closed again: it has threads, thread-local data and exit handlers of its own.
void *acl_open(const char *path, char *reason, size_t reason_bytes);

// acl_resolve looks up one symbol and stores it in api; 0 if the library lacks it.
int acl_resolve(void *library, const struct acl_symbol *symbol, struct acl_api *api);

// acl_origin writes the file that the library was loaded from, or nothing.
void acl_origin(void *library, char *path, size_t path_bytes);

enum { SIGNALS = 64 };

// acl_signals notes which signals have a handler that does not run on the alternate stack: 1 at the
// number of each. Go programs abort when such a handler runs on one of their threads.
void acl_signals(uint8_t risky[SIGNALS + 1]);

#endif
