/* Registrations: memory that peers may reach. There is one registry for the process before CANN 9, then one for each
 * device, which is found by the calling thread's device. */
#include <stdlib.h>
#include <time.h>

#include "hccl.h"

#define OLD_LIMIT 256

static int current_device(void)
{
    struct context *context = context_current();
    return context == NULL ? -1 : context->device;
}

static bool old(void) { return settings.hccl_generation < 9; }

static bool same_registry(const struct registration *r, const void *comm)
{
    return r->comm == comm && (comm != NULL || old() || r->device == current_device());
}

static size_t registrations_of(const void *comm)
{
    struct registration *r;
    size_t count = 0;
    for (size_t cursor = 0; (r = handle_next(OBJECT_REGISTRATION, &cursor)) != NULL;)
        count += same_registry(r, comm);
    return count;
}

/* Where a peer finds the memory: in an arena's file, or by address in this process. */
static int locate(struct registration *r)
{
    int code = 0;
    blocks_read();
    const struct block *block = block_at(r->start);
    if (block == NULL || r->start + r->size > block->start + block->span || block->kind == BLOCK_IMPORTED ||
        (block->kind == BLOCK_DEVICE) != (r->type == HCCL_MEM_DEVICE))
        code = call_fail(HCCL_E_PARA, "%zu bytes at %#lx are not in one allocation or registration of %s memory", r->size,
                         (unsigned long)r->start, r->type == HCCL_MEM_DEVICE ? "device" : "pinned host");
    else if (block->arena != NULL) {
        r->told.via = block->kind == BLOCK_DEVICE ? VIA_DEVICE : VIA_HOST;
        r->told.offset = r->start - block->arena->visible;
    } else
        r->told.via = VIA_PROCESS;
    blocks_unlock();
    return code;
}

static int check_overlap(uintptr_t start, uint64_t size, int type, void *comm, struct registration **same)
{
    struct registration *r;
    *same = NULL;
    for (size_t cursor = 0; (r = handle_next(OBJECT_REGISTRATION, &cursor)) != NULL;) {
        if (!same_registry(r, comm) || r->type != type)
            continue;
        if (r->start == start && r->size == size)
            *same = r;
        else if (start < r->start + r->size && r->start < start + size)
            return call_fail(HCCL_E_PARA, "%#lx overlaps a registration without being equal to it", (unsigned long)start);
    }
    return 0;
}

int registration_make(int type, void *addr, uint64_t size, void *comm, struct registration **made)
{
    if (addr == NULL)
        return HCCL_E_PTR;
    if (size == 0 || (type != HCCL_MEM_DEVICE && type != HCCL_MEM_HOST) || size > (type == HCCL_MEM_DEVICE ? 64 * GIB : 1024 * GIB))
        return call_fail(HCCL_E_PARA, "memory type %d or size %llu", type, (unsigned long long)size);
    if (old() && comm == NULL && registrations_of(NULL) >= OLD_LIMIT)
        return call_fail(HCCL_E_UNAVAIL, "%d registrations are the most", OLD_LIMIT);
    int code = check_overlap((uintptr_t)addr, size, type, comm, made);
    if (code != 0 || *made != NULL)
        return code;
    struct registration *r = calloc(1, sizeof *r);
    if (r == NULL)
        return HCCL_E_MEMORY;
    *r = (struct registration){.comm = comm, .type = type, .device = current_device(), .start = (uintptr_t)addr, .size = size};
    r->told = (struct export){.address = r->start, .size = size, .type = type};
    if ((code = locate(r)) == 0 && !share_take(&r->told.slot, &r->told.generation))
        code = HCCL_E_UNAVAIL;
    if (code == 0 && (r->handle = handle_new(OBJECT_REGISTRATION, r)) == NULL)
        code = HCCL_E_MEMORY;
    if (code != 0) {
        free(r);
        return code;
    }
    *made = r;
    return 0;
}

void registration_end(struct registration *registration)
{
    share_revoke(registration->told.slot);
    handle_remove(registration->handle);
    free(registration);
}

bool registration_covers(uintptr_t start, size_t size)
{
    struct registration *r;
    for (size_t cursor = 0; (r = handle_next(OBJECT_REGISTRATION, &cursor)) != NULL;)
        if (start < r->start + r->size && r->start < start + size)
            return true;
    return false;
}

HcclResult HcclRegisterGlobalMem(const HcclMem *mem, void **memHandle)
{
    struct registration *r;
    int code = hccl_begin(SYM_HcclRegisterGlobalMem, NEEDS_INIT);
    if (code == 0 && (mem == NULL || memHandle == NULL))
        code = HCCL_E_PTR;
    if (code == 0 && (code = registration_make(mem->type, mem->addr, mem->size, NULL, &r)) == 0)
        *memHandle = r->handle;
    return hccl_end(code);
}

/* A handle that was registered on a thread with another device, or with none, is unknown here. */
static struct registration *known(void *handle, int *code)
{
    struct registration *r = handle_find(OBJECT_REGISTRATION, handle);
    if (handle == NULL)
        *code = HCCL_E_PTR;
    else if (r == NULL || r->device < 0 || !same_registry(r, NULL))
        *code = call_fail(HCCL_E_PARA, "the memory handle is not known on this thread's device");
    return *code == 0 ? r : NULL;
}

/* The registry's NIC is closed with its last registration, even if something still needs it. */
static void close_nic(int device)
{
    struct communicator *comm;
    for (size_t cursor = 0; (comm = handle_next(OBJECT_COMMUNICATOR, &cursor)) != NULL;)
        if (old() || comm->device == device) {
            comm->nic_closed = true;
            violation("the last registration was taken back while communicator %s lives", comm->name);
        }
}

#define STILL_MS 200

/* Peers have begun their last piece of the memory. One that is stopped inside a piece is not waited for: no
 * communicator binds the memory any more, and those that did have waited. */
static void await_quiet(uint32_t slot)
{
    int64_t deadline = after_ms(STILL_MS);
    while (!share_quiet(slot) && now_ns() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

HcclResult HcclDeregisterGlobalMem(void *memHandle)
{
    int code = hccl_begin(SYM_HcclDeregisterGlobalMem, NEEDS_CONTEXT);
    struct registration *r = code == 0 ? known(memHandle, &code) : NULL;
    if (code == 0 && r->bindings > 0)
        code = call_fail(HCCL_E_PARA, "the memory is bound to %d communicators", r->bindings);
    if (code == 0) {
        int device = r->device;
        share_withdraw(r->told.slot);
        await_quiet(r->told.slot);
        registration_end(r);
        if (registrations_of(NULL) == 0)
            close_nic(device);
    }
    return hccl_end(code);
}

HcclResult HcclCommBindMem(HcclComm comm, void *memHandle)
{
    int code = hccl_begin(SYM_HcclCommBindMem, NEEDS_CONTEXT);
    struct communicator *c = code == 0 ? comm_find(comm, &code) : NULL;
    struct registration *r = code == 0 ? known(memHandle, &code) : NULL;
    if (code == 0 && comm_bound(c, r->start, r->size))
        code = call_fail(HCCL_E_PARA, "the memory is bound to communicator %s already", c->name);
    if (code == 0 && old() && c->bound_count >= OLD_LIMIT)
        code = HCCL_E_UNAVAIL;
    if (code == 0 && !comm_bind(c, r))
        code = HCCL_E_MEMORY;
    return hccl_end(code);
}

HcclResult HcclCommUnbindMem(HcclComm comm, void *memHandle)
{
    int code = hccl_begin(SYM_HcclCommUnbindMem, NEEDS_CONTEXT);
    struct communicator *c = code == 0 ? comm_find(comm, &code) : NULL;
    struct registration *r = code == 0 ? known(memHandle, &code) : NULL;
    if (code == 0 && !comm_bound(c, r->start, r->size))
        code = call_fail(HCCL_E_PARA, "the memory is not bound to communicator %s", c->name);
    if (code == 0)
        comm_unbind(c, r);
    return hccl_end(code);
}

/* Physical pages behind an address do not change here. */
HcclResult HcclRemapRegistedMemory(HcclComm *comms, HcclMem *memArray, uint64_t commSize, uint64_t arraySize)
{
    (void)comms, (void)memArray, (void)commSize, (void)arraySize;
    int code = hccl_begin(SYM_HcclRemapRegistedMemory, NEEDS_CONTEXT);
    return hccl_end(code != 0 ? code : HCCL_E_NOT_SUPPORT);
}
