//go:build cgo && linux

#include "open.h"

#include <stdlib.h>

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
