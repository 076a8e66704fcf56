/* Allocating and freeing device memory and pinned host memory. */
#include <stdlib.h>

#include "hccl.h"

#define HUGE (2 * MIB)

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static struct arena **arena_place(int device) { return device < 0 ? &host_arena : &devices[device].memory; }

static struct arena *arena_for(int device)
{
    struct arena **place = arena_place(device);
    if (*place == NULL)
        *place = arena_new(device, (size_t)(device < 0 ? settings.host_memory : settings.device_memory));
    return *place;
}

/* What an allocation takes: device memory 32 bytes more than asked and in units of 32, or 2 MiB pages; host
 * memory whole pages. */
static size_t span_of(size_t size, int device)
{
    if (device < 0)
        return round_up(size, 4 * KIB);
    return size > MIB ? round_up(size, HUGE) : round_up(size, 32) + 32;
}

/* New memory is filled with a pattern and never with zeros, on which a program might come to rely. */
static void fill_new(const struct block *block)
{
    size_t step = block->size <= (size_t)settings.fill_max ? block->size : HUGE;
    size_t part = step == HUGE ? 4 * KIB : step;
    for (size_t at = 0; at < block->size; at += step)
        bytes_fill(block->inner + at, 0xa5, block->size - at < part ? block->size - at : part);
}

static int place(struct arena *arena, struct block *block)
{
    size_t align = block->kind == BLOCK_HOST ? 4 * KIB : block->size > MIB ? HUGE : 64;
    block->page = (uint32_t)(align == HUGE ? HUGE : 4 * KIB);
    int code = fault_oom(arena->device, arena->used, block->span);
    if (code != 0)
        return call_fail(code, "out of memory by a fault rule, %zu bytes in use", arena->used);
    if (block->span > arena->quota || arena->used > arena->quota - block->span)
        return call_fail(ACL_RT_MEMORY_ALLOCATION, "%zu bytes do not fit: %zu of %zu in use", block->size, arena->used, arena->quota);
    blocks_write();
    bool placed = arena_take(arena, block, align);
    blocks_unlock();
    return placed ? 0 : call_fail(ACL_RT_MEMORY_ALLOCATION, "no %zu bytes in one piece", block->size);
}

static int allocate(void **p, size_t size, int device)
{
    if (p == NULL || size == 0)
        return ACL_INVALID_PARAM;
    if (size > SIZE_MAX / 4)
        return ACL_RT_MEMORY_ALLOCATION;
    struct arena *arena = arena_for(device);
    struct block *block = calloc(1, sizeof *block);
    if (arena == NULL || block == NULL) {
        free(block);
        return call_fail(ACL_RT_MEMORY_ALLOCATION, "no address space for an arena");
    }
    block->size = size;
    block->span = span_of(size, device);
    block->kind = device < 0 ? BLOCK_HOST : BLOCK_DEVICE;
    block->device = device;
    block->context = thread_context;
    int code = place(arena, block);
    if (code != 0) {
        free(block);
        return code;
    }
    fill_new(block);
    *p = (void *)block->start;
    report_live(device < 0 ? "host_blocks" : "device_blocks", 1);
    report_high(device < 0 ? "host_memory_high" : "device_memory_high", arena->high);
    return 0;
}

static void discard(struct block *block)
{
    if (__atomic_load_n(&block->users, __ATOMIC_ACQUIRE) > 0)
        violation("free during use: %zu bytes at %#lx were freed with %d tasks that still touch them", block->size,
                  (unsigned long)block->start, block->users);
    if (registration_covers(block->start, block->span))
        violation("free of %zu bytes at %#lx, which are registered with HCCL", block->size, (unsigned long)block->start);
    if (ipc_exported(block->start, block->span))
        violation("free of %zu bytes at %#lx, which are exported to other processes", block->size, (unsigned long)block->start);
    arena_give(block);
    report_live(block->kind == BLOCK_HOST ? "host_blocks" : "device_blocks", -1);
    free(block);
}

static int release(void *p, enum block_kind kind)
{
    if (p == NULL)
        return ACL_INVALID_PARAM;
    blocks_write();
    struct block *block = block_remove((uintptr_t)p, kind);
    if (block != NULL)
        discard(block);
    blocks_unlock();
    if (block != NULL)
        return 0;
    violation("free of %p, which is not the start of %s memory that is allocated", p, kind == BLOCK_HOST ? "host" : "device");
    return call_fail(ACL_RT_PARAM_INVALID, "%p is not allocated", p);
}

void blocks_of_context_free(void *context)
{
    struct block *block;
    blocks_write();
    for (size_t cursor = 0; (block = block_next(&cursor)) != NULL;)
        if (block->context == context && (block->kind == BLOCK_DEVICE || block->kind == BLOCK_HOST)) {
            block_remove(block->start, block->kind);
            discard(block);
            cursor--;
        }
    blocks_unlock();
}

aclError aclrtMalloc(void **p, size_t n, int policy)
{
    (void)policy; /* an unknown policy counts as the default */
    int code = call_begin(SYM_aclrtMalloc, NEEDS_CONTEXT);
    return call_end(code != 0 ? code : allocate(p, n, context_current()->device));
}

aclError aclrtMallocWithCfg(void **p, size_t n, int policy, aclrtMallocConfig *cfg)
{
    (void)policy;
    int code = call_begin(SYM_aclrtMallocWithCfg, NEEDS_CONTEXT);
    if (code == 0 && cfg != NULL && cfg->numAttrs > 0 && cfg->attrs == NULL)
        code = ACL_INVALID_PARAM;
    return call_end(code != 0 ? code : allocate(p, n, context_current()->device));
}

aclError aclrtMallocHost(void **p, size_t n)
{
    int code = call_begin(SYM_aclrtMallocHost, NEEDS_CONTEXT);
    return call_end(code != 0 ? code : allocate(p, n, -1));
}

aclError aclrtFree(void *p)
{
    int code = call_begin(SYM_aclrtFree, NEEDS_INIT);
    return call_end(code != 0 ? code : release(p, BLOCK_DEVICE));
}

aclError aclrtFreeWithDevSync(void *p)
{
    int code = call_begin(SYM_aclrtFreeWithDevSync, NEEDS_INIT);
    if (code != 0)
        return call_end(code);
    blocks_read();
    struct block *block = block_at((uintptr_t)p);
    int device = block != NULL ? block->device : -1;
    blocks_unlock();
    if (device >= 0)
        device_wait_idle(device, FOREVER);
    return call_end(release(p, BLOCK_DEVICE));
}

aclError aclrtFreeHost(void *p)
{
    int code = call_begin(SYM_aclrtFreeHost, NEEDS_INIT);
    return call_end(code != 0 ? code : release(p, BLOCK_HOST));
}
