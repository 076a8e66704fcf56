// The symbols that the binding looks for.
#ifndef KVFERRY_HCCL_OPEN_H
#define KVFERRY_HCCL_OPEN_H

#include "abi.h"

enum hccl_group { GROUP_ALWAYS, GROUP_GLOBAL, GROUP_EXCHANGE, GROUP_OPTIONAL };

struct hccl_symbol {
  const char *name;
  size_t offset; // in struct hccl_api
  int group;     // enum hccl_group
};

// hccl_symbol returns the symbol of an index, and NULL after the last symbol.
const struct hccl_symbol *hccl_symbol(size_t index);

// hccl_api_new makes an empty table of functions, to be freed with free.
struct hccl_api *hccl_api_new(void);

#endif
