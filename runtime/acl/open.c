//go:build cgo && linux

#define _GNU_SOURCE
#include "open.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct acl_symbol symbols[] = {
#define ACL_NEEDED(symbol, result, parameters) {#symbol, offsetof(struct acl_api, symbol), 1},
#define ACL_WELCOME(symbol, result, parameters) {#symbol, offsetof(struct acl_api, symbol), 0},
    ACL_REQUIRED(ACL_NEEDED) ACL_OPTIONAL(ACL_WELCOME)
#undef ACL_NEEDED
#undef ACL_WELCOME
};

const struct acl_symbol *acl_symbol(size_t index) {
  return index < sizeof symbols / sizeof symbols[0] ? &symbols[index] : NULL;
}

struct acl_api *acl_api_new(void) {
  struct acl_api *api = calloc(1, sizeof *api);
  if (api == NULL) abort(); // as Go does when it has no memory
  return api;
}

void *acl_open(const char *path, char *reason, size_t reason_bytes) {
  reason[0] = '\0';
  // Global, because the library loads plug-ins that look for its symbols.
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) {
    const char *text = dlerror();
    snprintf(reason, reason_bytes, "%s", text != NULL ? text : "unknown reason");
  }
  return library;
}

int acl_resolve(void *library, const struct acl_symbol *symbol, struct acl_api *api) {
  void *address = dlsym(library, symbol->name);
  memcpy((char *)api + symbol->offset, &address, sizeof address);
  return address != NULL;
}

void acl_origin(void *library, char *path, size_t path_bytes) {
  struct link_map *map = NULL;
  path[0] = '\0';
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != NULL)
    snprintf(path, path_bytes, "%s", map->l_name);
}

void acl_signals(uint8_t risky[SIGNALS + 1]) {
  risky[0] = 0;
  for (int number = 1; number <= SIGNALS; number++) {
    struct sigaction action;
    risky[number] = sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
                    action.sa_handler != SIG_IGN && !(action.sa_flags & SA_ONSTACK);
  }
}
