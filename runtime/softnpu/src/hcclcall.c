/* The beginning and end of HCCL's functions, the names of their codes, and the small functions. */
#include <stdlib.h>
#include <string.h>

#include "hccl.h"

/* A failure of a call inside becomes E_RUNTIME for the caller; the text names the call. */
int hccl_begin(enum symbol symbol, enum needs needs)
{
    int code = call_begin(symbol, needs);
    return code >= ACL_INVALID_PARAM ? HCCL_E_RUNTIME : code;
}

const char *HcclGetErrorString(HcclResult code)
{
    switch (code) {
#define X(value, name) case value: return "HCCL_" #name;
    HCCL_CODES(X)
#undef X
    }
    return "unknown HCCL result";
}

int hccl_end(int code)
{
    if (code >= ACL_INVALID_PARAM)
        code = HCCL_E_RUNTIME;
    return call_end(code);
}

int64_t environment_number(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    char *rest;
    if (text == NULL)
        return otherwise;
    int64_t value = strtoll(text, &rest, 10);
    return rest == text ? otherwise : value;
}

/* R: how long the NIC retries after everything else has given up. */
int64_t residual_ms(void)
{
    if (settings.residual_ms > 0)
        return settings.residual_ms;
    int64_t timeout = environment_number("HCCL_RDMA_TIMEOUT", 20), tries = environment_number("HCCL_RDMA_RETRY_CNT", 7) + 1;
    return timeout < 5 || timeout > 20 ? 34360 : (4096 * (INT64_C(1) << timeout) * tries + 999999) / 1000000;
}

HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult *asyncError)
{
    int code = hccl_begin(SYM_HcclGetCommAsyncError, NEEDS_INIT);
    if (code == 0 && (comm == NULL || asyncError == NULL))
        code = HCCL_E_PTR;
    struct communicator *c = code == 0 ? comm_find(comm, &code) : NULL;
    if (code != 0)
        return hccl_end(code);
    *asyncError = c->async_error;
    for (uint32_t i = 0; i < c->count; i++)
        if (c->links[i] != NULL && link_peer_dead(c->links[i]) && !c->links[i]->silent && strcmp(settings.gone, "silent") != 0)
            *asyncError = c->async_error = HCCL_E_REMOTE;
    return hccl_end(0);
}

/* Eleven fields' worth: the newest layout of the configuration. */
uint32_t HcclGetCommConfigCapability(void)
{
    call_begin(SYM_HcclGetCommConfigCapability, NEEDS_NOTHING);
    call_end(0);
    return 12;
}
