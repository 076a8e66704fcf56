//go:build cgo && linux

#define _GNU_SOURCE
#include "loader.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>

void *loader_open(const char *path, char *reason, size_t reason_bytes) {
  reason[0] = '\0';
  // Global, because the library loads plug-ins that look for its symbols.
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) {
    const char *text = dlerror();
    snprintf(reason, reason_bytes, "%s", text != NULL ? text : "unknown reason");
  }
  return library;
}

int loader_resident(const char *path) { return dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL; }

void *loader_symbol(void *library, const char *name) { return dlsym(library, name); }

void loader_origin(void *library, char *path, size_t path_bytes) {
  struct link_map *map = NULL;
  path[0] = '\0';
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != NULL)
    snprintf(path, path_bytes, "%s", map->l_name);
}

void loader_signals(uint8_t risky[SIGNALS + 1]) {
  risky[0] = 0;
  for (int number = 1; number <= SIGNALS; number++) {
    struct sigaction action;
    risky[number] = sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
                    action.sa_handler != SIG_IGN && !(action.sa_flags & SA_ONSTACK);
  }
}
