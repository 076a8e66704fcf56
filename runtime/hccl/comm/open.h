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

// hccl_symbol returns the symbols one by one, and NULL after the last.
const struct hccl_symbol *hccl_symbol(size_t index);

// hccl_api_new makes an empty table of functions; free it with free.
struct hccl_api *hccl_api_new(void);

#endif
