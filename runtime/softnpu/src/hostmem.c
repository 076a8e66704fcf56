/* Registration of the program's own memory for devices. It is a list beside the table of blocks, because memory of
 * aclrtMallocHost, which is already in the table, may be registered as well. */
#include <stdlib.h>

#include "hccl.h"

#define PAGE (4 * KIB)
#define MAPPED_V2 0x2u
#define KNOWN_V2 (0x2u | 0x4u | 0x8u | 0x10000000u)

struct pinning { struct pinning *next; uintptr_t start; size_t size; bool in_table, mapped; };

static struct pinning *pinnings;

/* The address that the device would use. No copy function accepts it, so it need not be usable here. */
static void *device_address(uintptr_t start) { return (void *)(start | UINT64_C(1) << 56); }

static struct pinning **find(uintptr_t start)
{
    struct pinning **at = &pinnings;
    while (*at != NULL && (*at)->start != start)
        at = &(*at)->next;
    return at;
}

static bool overlaps(uintptr_t start, size_t size)
{
    for (const struct pinning *r = pinnings; r != NULL; r = r->next)
        if (start < r->start + r->size && r->start < start + size)
            return true;
    return false;
}

/* Makes the block of memory that belongs to no arena. */
static int into_table(struct pinning *r)
{
    blocks_write();
    struct block *there = block_from(r->start);
    bool apart = there == NULL || there->start >= r->start + r->size;
    bool within = there != NULL && there->kind == BLOCK_HOST && there->start <= r->start &&
                  r->start + r->size <= there->start + there->span;
    struct block *block = apart ? calloc(1, sizeof *block) : NULL;
    if (block != NULL) {
        *block = (struct block){.start = r->start, .size = r->size, .span = r->size, .kind = BLOCK_REGISTERED, .device = -1,
                                .page = PAGE, .inner = (unsigned char *)r->start};
        r->in_table = block_insert(block);
        if (!r->in_table)
            free(block);
    }
    blocks_unlock();
    if (!apart && !within)
        return call_fail(ACL_RT_PARAM_INVALID, "%#lx is device memory, or partly in another allocation", (unsigned long)r->start);
    return within || r->in_table ? 0 : ACL_BAD_ALLOC;
}

static int enter(void *p, uint64_t n, bool mapped)
{
    if (p == NULL || n == 0)
        return ACL_INVALID_PARAM;
    if ((uintptr_t)p % PAGE != 0)
        return call_fail(ACL_RT_ADDR_UNALIGNED, "%p is not a multiple of 4096", p);
    if (overlaps((uintptr_t)p, n))
        return call_fail(ACL_HOST_MEMORY_ALREADY_REGISTERED, "%p is registered already, at least in part", p);
    struct pinning *r = calloc(1, sizeof *r);
    if (r == NULL)
        return ACL_BAD_ALLOC;
    *r = (struct pinning){.next = pinnings, .start = (uintptr_t)p, .size = n, .mapped = mapped};
    int code = into_table(r);
    if (code != 0) {
        free(r);
        return code;
    }
    pinnings = r;
    report_live("host_registrations", 1);
    return 0;
}

static int leave(void *p)
{
    struct pinning **at = find((uintptr_t)p), *r = *at;
    if (p == NULL)
        return ACL_INVALID_PARAM;
    if (r == NULL)
        return call_fail(ACL_HOST_MEMORY_NOT_REGISTERED, "%p is not registered", p);
    *at = r->next;
    if (r->in_table && registration_covers(r->start, r->size))
        violation("aclrtHostUnregister of %p, which is registered with HCCL", p);
    if (r->in_table) {
        blocks_write();
        struct block *block = block_remove(r->start, BLOCK_REGISTERED);
        if (block != NULL && __atomic_load_n(&block->users, __ATOMIC_ACQUIRE) > 0)
            violation("aclrtHostUnregister during use: %d tasks still touch %zu bytes at %p", block->users, block->size, p);
        blocks_unlock();
        free(block);
    }
    free(r);
    report_live("host_registrations", -1);
    return 0;
}

aclError aclrtHostRegister(void *p, uint64_t n, int type, void **devPtr)
{
    int code = call_begin(SYM_aclrtHostRegister, NEEDS_CONTEXT);
    if (code == 0 && devPtr == NULL)
        code = ACL_INVALID_PARAM;
    if (code == 0 && type != HOST_REGISTER_MAPPED && type != HOST_REGISTER_IOMEMORY && type != HOST_REGISTER_READONLY)
        code = call_fail(ACL_RT_PARAM_INVALID, "registration type %d is not known", type);
    if (code == 0 && (code = enter(p, n, true)) == 0)
        *devPtr = device_address((uintptr_t)p);
    return call_end(code);
}

aclError aclrtHostRegisterV2(void *p, uint64_t n, uint32_t flags)
{
    int code = call_begin(SYM_aclrtHostRegisterV2, NEEDS_CONTEXT);
    if (code == 0 && (flags == 0 || (flags & ~KNOWN_V2) != 0))
        code = call_fail(ACL_RT_PARAM_INVALID, "registration flags %#x are not known", flags);
    return call_end(code != 0 ? code : enter(p, n, (flags & MAPPED_V2) != 0));
}

aclError aclrtHostGetDevicePointer(void *host, void **dev, uint32_t flag)
{
    int code = call_begin(SYM_aclrtHostGetDevicePointer, NEEDS_CONTEXT);
    if (code == 0 && (host == NULL || dev == NULL || flag != 0))
        code = ACL_INVALID_PARAM;
    const struct pinning *r = *find((uintptr_t)host);
    if (code == 0 && (r == NULL || !r->mapped))
        code = call_fail(ACL_HOST_MEMORY_NOT_REGISTERED, "%p is not registered, or not as mapped", host);
    if (code == 0)
        *dev = device_address((uintptr_t)host);
    return call_end(code);
}

aclError aclrtHostUnregister(void *p)
{
    int code = call_begin(SYM_aclrtHostUnregister, NEEDS_CONTEXT);
    return call_end(code != 0 ? code : leave(p));
}
