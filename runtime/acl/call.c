//go:build cgo && linux

#include "call.h"

#include <stdlib.h>
#include <string.h>

// The library keeps its context in thread-local storage. The binding has a thread-local mark, too: the record of calls
// that the running thread owns.
static _Thread_local const struct call *owned;

struct call *call_new(const struct acl_api *api, int free_threaded) {
  struct call *c = calloc(1, sizeof *c);
  if (c == NULL) abort(); // as Go does when it has no memory
  c->api = api;
  c->free_threaded = free_threaded;
  return c;
}

void call_delete(struct call *c) {
  if (owned == c) owned = NULL;
  free(c);
}

void call_bind(struct call *c) { owned = c; }

int call_allowed(const struct call *c) {
  return c != NULL && (c->free_threaded || owned == c) ? 0 : CALL_STRAY_THREAD;
}

int call_is_here(const struct call *c) { return c != NULL && owned == c; }

const char *call_message(struct call *c) {
  c->message[0] = '\0';
  const char *text = c->api->aclGetRecentErrMsg();
  if (text != NULL) {
    strncpy(c->message, text, CALL_MESSAGE_BYTES - 1);
    c->message[CALL_MESSAGE_BYTES - 1] = '\0';
  }
  return c->message;
}

int call_ended(struct call *c, int code) {
  c->message[0] = '\0';
  if (code != 0) call_message(c);
  return code;
}
