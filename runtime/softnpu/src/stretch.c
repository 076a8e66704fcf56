/* Stretches: ranges of memory that a task was given. They are checked against the table of blocks when the task is
 * made, and looked up again for each piece, because the program may free the memory meanwhile. */
#include "npu.h"

static bool in_arena(uintptr_t address, const struct arena *arena)
{
    return arena != NULL && address >= arena->visible && address - arena->visible < arena->length;
}

/* Addresses that only the software NPU can have given out: freed memory, and registered host memory as the device sees
 * it, which the copy functions do not accept. */
static bool foreign(uintptr_t address)
{
    for (int i = 0; i < MAX_DEVICES; i++)
        if (in_arena(address, devices[i].memory))
            return true;
    return in_arena(address, host_arena) || ipc_address(address) || address >> 47 != 0;
}

static int check(struct stretch *stretch, const struct block *block, enum side side, const char *what)
{
    uintptr_t end = stretch->address + stretch->length;
    if (end < stretch->address)
        return call_fail(ACL_RT_PARAM_INVALID, "%s: a range wraps around", what);
    if (block == NULL && (side == SIDE_DEVICE || foreign(stretch->address)))
        return call_fail(ACL_RT_PARAM_INVALID, "%s: %#lx is in no allocation", what, (unsigned long)stretch->address);
    if (block == NULL) {
        const struct block *next = block_from(stretch->address);
        if (next != NULL && next->start < end)
            return call_fail(ACL_RT_PARAM_INVALID, "%s: a range of pageable memory runs into an allocation", what);
        return 0;
    }
    if (side == SIDE_DEVICE && !block_on_device(block))
        return call_fail(ACL_RT_PARAM_INVALID, "%s: %#lx is host memory, where the kind says device", what,
                         (unsigned long)stretch->address);
    if (side == SIDE_HOST && block_on_device(block))
        return call_fail(ACL_RT_PARAM_INVALID, "%s: %#lx is device memory, where the kind says host", what,
                         (unsigned long)stretch->address);
    if (end > block->start + block->size)
        return call_fail(ACL_RT_PARAM_INVALID, "%s: %zu bytes at %#lx cross the end of their allocation by %zu", what,
                         stretch->length, (unsigned long)stretch->address, (size_t)(end - block->start - block->size));
    return 0;
}

int stretch_make(struct stretch *stretch, const void *address, size_t length, enum side side, const char *what)
{
    *stretch = (struct stretch){.address = (uintptr_t)address, .length = length};
    blocks_read();
    const struct block *block = block_at(stretch->address);
    int code = check(stretch, block, side, what);
    if (code == 0 && block != NULL) {
        stretch->serial = block->serial;
        stretch->device = block_on_device(block);
    }
    blocks_unlock();
    return code;
}

bool stretch_pinned(const struct stretch *stretch) { return stretch->serial != 0; }

static struct block *block_of(const struct stretch *stretch)
{
    struct block *block = stretch->serial == 0 ? NULL : block_at(stretch->address);
    return block != NULL && block->serial == stretch->serial ? block : NULL;
}

static void count_user(const struct stretch *stretch, int change)
{
    blocks_read();
    struct block *block = block_of(stretch);
    if (block != NULL)
        __atomic_add_fetch(&block->users, change, __ATOMIC_ACQ_REL);
    blocks_unlock();
}

void stretch_hold(const struct stretch *stretch) { count_user(stretch, 1); }
void stretch_release(const struct stretch *stretch) { count_user(stretch, -1); }

unsigned char *stretch_inner(const struct stretch *stretch, size_t offset, size_t length)
{
    uintptr_t address = stretch->address + offset;
    if (stretch->serial == 0)
        return (unsigned char *)address;
    struct block *block = block_of(stretch);
    if (block == NULL || address + length > block->start + block->size)
        return NULL;
    return block->inner + (address - block->start);
}
