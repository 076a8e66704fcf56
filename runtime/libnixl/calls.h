// The calls that Go makes. Go cannot call through a C pointer, and each crossing costs, so steps that belong together
// are a single call. Each returns the status of the first function that failed; *at or the agent has the name of that
// function.
#ifndef KVFERRY_LIBNIXL_CALLS_H
#define KVFERRY_LIBNIXL_CALLS_H

#include "abi.h"

// An agent with its backend, and objects that the agent's calls need repeatedly.
struct agent {
  const struct nixl_api *api;
  const char *at; // the function that was called last
  nixl_handle agent;
  nixl_handle backend;
  nixl_handle options; // that name the backend
  nixl_handle notices; // a map, empty between two calls
};

struct range {
  uint64_t address;
  uint64_t bytes;
  uint64_t device;
};

struct pair {
  uint64_t local, remote;
  uint64_t bytes;
};

// A function for each step of making an agent: the parameters of the backend, and the agent.
int nixl_call_params(const struct nixl_api *api, nixl_handle *params, const char **at);
int nixl_call_param(const struct nixl_api *api, nixl_handle params, const char *key, const char *value,
                    const char **at);
void nixl_call_params_free(const struct nixl_api *api, nixl_handle params);

// nixl_call_agent makes an agent; a failure leaves nothing.
int nixl_call_agent(const struct nixl_api *api, const char *name, const char *plugin, nixl_handle params,
                    struct agent **made, const char **at);

// nixl_call_agent_free destroys the agent, and frees a on success.
int nixl_call_agent_free(struct agent *a);

int nixl_call_register(struct agent *a, int memory, const struct range *ranges, size_t count, int off);

// nixl_call_metadata returns bytes that the caller frees with free.
int nixl_call_metadata(struct agent *a, void **data, size_t *bytes);
// nixl_call_load returns a name that the caller frees with free.
int nixl_call_load(struct agent *a, const void *data, size_t bytes, char **name);
int nixl_call_forget(struct agent *a, const char *peer);
int nixl_call_connect(struct agent *a, const char *peer);

// The kinds of memory at both ends, and devices, are the same for all pairs of a transfer.
struct sides {
  int local_memory, remote_memory;
  uint64_t local_device, remote_device;
};

int nixl_call_transfer(struct agent *a, int operation, struct sides sides, const struct pair *pairs, size_t count,
                  const char *peer, const void *notice, size_t notice_bytes, nixl_handle *request);
int nixl_call_post(struct agent *a, nixl_handle request);
int nixl_call_check(struct agent *a, nixl_handle request);
int nixl_call_release(struct agent *a, nixl_handle request);

int nixl_call_notify(struct agent *a, const char *peer, const void *data, size_t bytes);

// nixl_call_notices advances the agent and returns of how many peers there are notices.
int nixl_call_notices(struct agent *a, size_t *peers);
int nixl_call_notices_of(struct agent *a, size_t index, const char **peer, size_t *count);
int nixl_call_notice(struct agent *a, const char *peer, size_t index, const void **data, size_t *bytes);
int nixl_call_notices_clear(struct agent *a);

#endif
