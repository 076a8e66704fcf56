// The symbols that the binding looks for.
#ifndef KVFERRY_ACL_OPEN_H
#define KVFERRY_ACL_OPEN_H

#include "abi.h"

struct acl_symbol {
  const char *name;
  size_t offset; // in struct acl_api
  int required;
};

// acl_symbol returns the symbols one by one, and NULL after the last.
const struct acl_symbol *acl_symbol(size_t index);

// acl_api_new makes an empty table of functions; free it with free.
struct acl_api *acl_api_new(void);

#endif
