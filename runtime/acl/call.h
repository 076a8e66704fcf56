// One call of the library: the check of the thread, and the error text that belongs to the call.
#ifndef KVFERRY_ACL_CALL_H
#define KVFERRY_ACL_CALL_H

#include "abi.h"

// Results of the binding itself; the library's own are never negative.
enum {
  CALL_STRAY_THREAD = -1, // the calling thread is not the one that owns the context
  CALL_NO_SYMBOL = -2,    // the library has no such function
};

enum { CALL_MESSAGE_BYTES = 1024 };

// A thread's calls. The record lives in C memory; the thread that owns it is the only one to use it.
struct call {
  const struct acl_api *api;
  int free_threaded;                // 1: for calls that need no context, from any thread, one at a time
  char message[CALL_MESSAGE_BYTES]; // text of the call that failed last, NUL-terminated
};

struct call *call_new(const struct acl_api *api, int free_threaded);
void call_delete(struct call *c);

// call_bind makes the calling thread the one that owns c. Until it ends, or binds another, every other
// thread's calls with c are refused before they reach the library.
void call_bind(struct call *c);

// call_allowed is 0, or CALL_STRAY_THREAD.
int call_allowed(const struct call *c);

// call_is_here is 1 on the thread that owns c. It does not look into c, which may be gone.
int call_is_here(const struct call *c);

// call_message fetches the library's text about the calling thread's last failure into c, and returns it.
const char *call_message(struct call *c);

// call_ended fetches the library's text about a failure, on the thread where it occurred and before another call there
// could replace it. It returns code.
int call_ended(struct call *c, int code);

#define CALL(c, symbol, ...)                            \
  do {                                                  \
    int refused = call_allowed(c);                      \
    if (refused) return refused;                        \
    if ((c)->api->symbol == NULL) return CALL_NO_SYMBOL; \
    return call_ended((c), (c)->api->symbol(__VA_ARGS__)); \
  } while (0)

#endif
