// A call of the library: the check of the thread, and the error text that belongs to the call.
#ifndef KVFERRY_ACL_CALL_H
#define KVFERRY_ACL_CALL_H

#include "abi.h"

// Results of the binding itself; the library's own are never negative.
enum {
  CALL_STRAY_THREAD = -1, // the calling thread does not own the context
  CALL_NO_SYMBOL = -2,    // the library has no such function
};

enum { CALL_MESSAGE_BYTES = 1024 };

// A thread's calls. The record is in C memory, and only the thread that owns the record uses it.
struct call {
  const struct acl_api *api;
  int free_threaded;                // 1: for calls that need no context, from any thread, in turn
  char message[CALL_MESSAGE_BYTES]; // text of the call that failed last, NUL-terminated
};

struct call *call_new(const struct acl_api *api, int free_threaded);
void call_delete(struct call *c);

// call_bind makes the calling thread the owner of c. Until the thread ends, or binds another record, calls of all
// further threads with c are refused before they reach the library.
void call_bind(struct call *c);

// call_allowed is 0, or CALL_STRAY_THREAD.
int call_allowed(const struct call *c);

// call_is_here is 1 on the thread that owns c. The function does not access *c, which may have been freed.
int call_is_here(const struct call *c);

// call_message copies the library's text about the calling thread's last failure into c, and returns the text.
const char *call_message(struct call *c);

// call_ended copies the library's text about a failure into c, on the thread of the failure and before a later call
// there could replace the text. The result is code.
int call_ended(struct call *c, int code);

#define CALL(c, symbol, ...)                            \
  do {                                                  \
    int refused = call_allowed(c);                      \
    if (refused) return refused;                        \
    if ((c)->api->symbol == NULL) return CALL_NO_SYMBOL; \
    return call_ended((c), (c)->api->symbol(__VA_ARGS__)); \
  } while (0)

#endif
