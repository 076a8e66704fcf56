/* The older sequence: register with a communicator, exchange descriptors, enable access. */
#include <stdlib.h>
#include <string.h>

#include "hccl.h"

#define MOST_DESCRIPTORS 4096

/* What a descriptor holds in its opaque part. */
static const char mark[16] = "cannemu-memory";

static void describe(const struct communicator *c, const struct registration *r, uint32_t remote, HcclMemDesc *desc)
{
    memset(desc, 0, sizeof *desc);
    desc->localRank = c->rank;
    desc->remoteRank = remote;
    memcpy(desc->desc, mark, sizeof mark);
    memcpy(desc->desc + sizeof mark, &r->told, sizeof r->told);
}

static bool read_description(const HcclMemDesc *desc, struct export *told)
{
    memcpy(told, desc->desc + sizeof mark, sizeof *told);
    return memcmp(desc->desc, mark, sizeof mark) == 0 && told->slot < SLOTS;
}

HcclResult HcclRegisterMem(HcclComm comm, uint32_t remoteRank, int type, void *addr, uint64_t size, HcclMemDesc *desc)
{
    struct registration *r = NULL;
    int code = hccl_begin(SYM_HcclRegisterMem, NEEDS_CONTEXT);
    struct communicator *c = code == 0 ? comm_find(comm, &code) : NULL;
    if (code == 0 && desc == NULL)
        code = HCCL_E_PTR;
    if (code == 0 && (remoteRank >= c->count || remoteRank == c->rank))
        code = call_fail(HCCL_E_PARA, "rank %u is this one, or none", remoteRank);
    if (code == 0)
        code = registration_make(type, addr, size, c->handle, &r);
    if (code == 0 && r->count++ == 0 && !comm_bind(c, r)) {
        registration_end(r);
        code = HCCL_E_MEMORY;
    }
    if (code == 0) {
        describe(c, r, remoteRank, desc);
        code = r->count > 1 ? HCCL_E_AGAIN : 0; /* referenced already; not a failure */
    }
    return hccl_end(code);
}

static struct registration *described(const struct communicator *c, const HcclMemDesc *desc)
{
    struct export told;
    if (!read_description(desc, &told))
        return NULL;
    for (size_t i = 0; i < c->bound_count; i++)
        if (c->bound[i]->comm == c->handle && c->bound[i]->start == told.address && c->bound[i]->told.generation == told.generation)
            return c->bound[i];
    return NULL;
}

HcclResult HcclDeregisterMem(HcclComm comm, HcclMemDesc *desc)
{
    int code = hccl_begin(SYM_HcclDeregisterMem, NEEDS_CONTEXT);
    struct communicator *c = code == 0 ? comm_find(comm, &code) : NULL;
    if (code == 0 && desc == NULL)
        code = HCCL_E_PTR;
    struct registration *r = code == 0 ? described(c, desc) : NULL;
    if (code == 0 && r == NULL)
        code = call_fail(HCCL_E_PARA, "the descriptor is of no memory registered here");
    if (code == 0 && --r->count > 0)
        code = HCCL_E_AGAIN;
    if (code == 0) {
        comm_unbind(c, r);
        registration_end(r);
    }
    return hccl_end(code);
}

/* Lists both ways; the lower rank talks first. */
static bool swap_lists(int socket, bool first, const HcclMemDescs *local, HcclMemDesc **got, uint32_t *count, int64_t deadline)
{
    uint32_t mine = local->arrayLength;
    size_t out = mine * sizeof(HcclMemDesc);
    if (first && (!send_all(socket, &mine, sizeof mine, deadline) || !send_all(socket, local->array, out, deadline)))
        return false;
    if (!receive_all(socket, count, sizeof *count, deadline) || *count > MOST_DESCRIPTORS)
        return false;
    *got = calloc(*count + 1, sizeof(HcclMemDesc));
    if (*got == NULL || !receive_all(socket, *got, *count * sizeof(HcclMemDesc), deadline))
        return false;
    return first || (send_all(socket, &mine, sizeof mine, deadline) && send_all(socket, local->array, out, deadline));
}

/* The vendor's library writes as many entries as the peer sent. This one reports the overflow, and overflows only if
 * that is set. */
static void store(HcclMemDescs *remote, const HcclMemDesc *got, uint32_t count)
{
    uint32_t fits = count;
    if (count > remote->arrayLength) {
        violation("HcclExchangeMemDesc: the peer sent %u descriptors into an array of %u: memory corruption on hardware", count,
                  remote->arrayLength);
        fits = settings.exchange_overflows != 0 ? count : remote->arrayLength;
    }
    memcpy(remote->array, got, fits * sizeof *got);
}

static int exchange(struct communicator *c, uint32_t peer, const HcclMemDescs *local, int64_t deadline, HcclMemDescs *remote, uint32_t *n)
{
    HcclMemDesc *got = NULL;
    if (c->links[peer] == NULL) {
        int code = comm_meet(c, peer, deadline, false);
        if (code != 0)
            return code;
    }
    struct link *link = c->links[peer];
    link->references++;
    pthread_mutex_unlock(&npu_lock);
    bool done = swap_lists(link->socket, c->rank < peer, local, &got, n, deadline);
    pthread_mutex_lock(&npu_lock);
    link_drop(link);
    if (done)
        store(remote, got, *n);
    free(got);
    return done ? 0 : call_fail(HCCL_E_TIMEOUT, "rank %u did not exchange in time", peer);
}

HcclResult HcclExchangeMemDesc(HcclComm comm, uint32_t remoteRank, HcclMemDescs *local, int timeoutSec, HcclMemDescs *remote,
                               uint32_t *actualNum)
{
    int code = hccl_begin(SYM_HcclExchangeMemDesc, NEEDS_CONTEXT);
    struct communicator *c = code == 0 ? comm_find(comm, &code) : NULL;
    if (code == 0 && (local == NULL || remote == NULL || actualNum == NULL || (local->arrayLength > 0 && local->array == NULL) ||
                      (remote->arrayLength > 0 && remote->array == NULL)))
        code = HCCL_E_PTR;
    if (code == 0 && (remoteRank >= c->count || remoteRank == c->rank || timeoutSec < -1 || local->arrayLength > MOST_DESCRIPTORS))
        code = call_fail(HCCL_E_PARA, "rank %u, timeout %d or %u descriptors", remoteRank, timeoutSec, local->arrayLength);
    if (code == 0 && c->preparing)
        code = call_fail(HCCL_E_PARA, "communicator %s is connecting on another thread", c->name);
    if (code == 0) {
        int64_t seconds = timeoutSec == 0 ? environment_number("HCCL_CONNECT_TIMEOUT", 120) : timeoutSec;
        code = exchange(c, remoteRank, local, after_ms(seconds < 0 ? -1 : seconds * 1000), remote, actualNum);
    }
    return hccl_end(code);
}

static struct link *link_of(struct communicator *c, const HcclMemDesc *desc, struct export *told, int *code)
{
    if (desc == NULL)
        *code = HCCL_E_PTR;
    else if (!read_description(desc, told) || desc->localRank >= c->count)
        *code = call_fail(HCCL_E_PARA, "this is no memory descriptor");
    else if (c->links[desc->localRank] == NULL)
        *code = HCCL_E_NOT_FOUND;
    return *code == 0 ? c->links[desc->localRank] : NULL;
}

HcclResult HcclEnableMemAccess(HcclComm comm, HcclMemDesc *remoteDesc, HcclMem *remoteMem)
{
    struct export told;
    int code = hccl_begin(SYM_HcclEnableMemAccess, NEEDS_CONTEXT);
    struct communicator *c = code == 0 ? comm_find(comm, &code) : NULL;
    if (code == 0 && remoteMem == NULL)
        code = HCCL_E_PTR;
    struct link *link = code == 0 ? link_of(c, remoteDesc, &told, &code) : NULL;
    if (code == 0 && link->hccs && told.type == HCCL_MEM_HOST)
        code = call_fail(HCCL_E_NOT_SUPPORT, "host memory is no target over HCCS");
    if (code == 0 && c->in_flight > 0)
        code = HCCL_E_AGAIN;
    if (code == 0) {
        struct export *more = realloc(link->exports, (link->export_count + 1) * sizeof *more);
        if (more != NULL) {
            link->exports = more;
            link->exports[link->export_count++] = told;
            *remoteMem = (HcclMem){told.type, (void *)told.address, told.size};
        } else
            code = HCCL_E_MEMORY;
    }
    return hccl_end(code);
}

HcclResult HcclDisableMemAccess(HcclComm comm, HcclMemDesc *remoteDesc)
{
    struct export told;
    int code = hccl_begin(SYM_HcclDisableMemAccess, NEEDS_CONTEXT);
    struct communicator *c = code == 0 ? comm_find(comm, &code) : NULL;
    struct link *link = code == 0 ? link_of(c, remoteDesc, &told, &code) : NULL;
    if (code == 0 && c->in_flight > 0)
        code = HCCL_E_AGAIN;
    size_t i = 0;
    while (code == 0 && i < link->export_count && link->exports[i].address != told.address)
        i++;
    if (code == 0 && i == link->export_count)
        code = call_fail(HCCL_E_PARA, "access to this memory is not enabled");
    if (code == 0)
        link->exports[i] = link->exports[--link->export_count];
    return hccl_end(code);
}
