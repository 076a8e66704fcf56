// The symbols that the binding looks for.
#ifndef KVFERRY_ACL_OPEN_H
#define KVFERRY_ACL_OPEN_H

#include "abi.h"

struct acl_symbol {
  const char *name;
  size_t offset; // in struct acl_api
  int required;
};

// acl_symbol returns the symbol of an index, and NULL after the last symbol.
const struct acl_symbol *acl_symbol(size_t index);

// acl_api_new makes an empty table of functions, to be freed with free.
struct acl_api *acl_api_new(void);

#endif
