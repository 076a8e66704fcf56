//go:build cgo && linux

#include "open.h"

#include <stdlib.h>

static const struct hccl_symbol symbols[] = {
#define ROW(group, symbol) {#symbol, offsetof(struct hccl_api, symbol), group},
#define ALWAYS(symbol, result, parameters) ROW(GROUP_ALWAYS, symbol)
#define GLOBAL(symbol, result, parameters) ROW(GROUP_GLOBAL, symbol)
#define EXCHANGE(symbol, result, parameters) ROW(GROUP_EXCHANGE, symbol)
#define OPTIONAL(symbol, result, parameters) ROW(GROUP_OPTIONAL, symbol)
    HCCL_ALWAYS(ALWAYS) HCCL_GLOBAL(GLOBAL) HCCL_EXCHANGE(EXCHANGE) HCCL_OPTIONAL(OPTIONAL)};

const struct hccl_symbol *hccl_symbol(size_t index) {
  return index < sizeof symbols / sizeof symbols[0] ? &symbols[index] : NULL;
}

struct hccl_api *hccl_api_new(void) {
  struct hccl_api *api = calloc(1, sizeof *api);
  if (api == NULL) abort(); // as Go does when it has no memory
  return api;
}
