/* Queries about memory: how much there is, and what an address belongs to. */
#include "npu.h"

/* The devices have HBM (1, and its kinds 4, 5 and 8 to 11); of the rest they know nothing, which is a
 * success with two zeros. */
static bool is_hbm(int attr) { return attr == 1 || attr == 4 || attr == 5 || (attr >= 8 && attr <= 11); }

aclError aclrtGetMemInfo(int attr, size_t *free, size_t *total)
{
    int code = call_begin(SYM_aclrtGetMemInfo, NEEDS_CONTEXT);
    if (code == 0 && (free == NULL || total == NULL))
        code = ACL_INVALID_PARAM;
    if (code != 0)
        return call_end(code);
    struct arena *arena = devices[context_current()->device].memory;
    size_t all = arena != NULL ? arena->quota : (size_t)settings.device_memory;
    *total = is_hbm(attr) ? all : 0;
    *free = is_hbm(attr) ? all - (arena != NULL ? arena->used : 0) : 0;
    return call_end(0);
}

aclError aclrtPointerGetAttributes(const void *p, aclrtPtrAttributes *a)
{
    int code = call_begin(SYM_aclrtPointerGetAttributes, NEEDS_INIT);
    if (code == 0 && (p == NULL || a == NULL))
        code = ACL_INVALID_PARAM;
    if (code != 0)
        return call_end(code);
    *a = (aclrtPtrAttributes){.location = {.type = LOCATION_UNREGISTERED}};
    blocks_read();
    const struct block *block = block_at((uintptr_t)p);
    if (block != NULL) {
        a->location.type = block_on_device(block) ? LOCATION_DEVICE : LOCATION_HOST;
        a->location.id = block_on_device(block) ? (uint32_t)block->device : 0;
        a->pageSize = block->page;
    }
    blocks_unlock();
    return call_end(0);
}

aclError aclrtMemGetAddressRange(void *p, void **base, size_t *size)
{
    int code = call_begin(SYM_aclrtMemGetAddressRange, NEEDS_CONTEXT);
    if (code == 0 && (p == NULL || (base == NULL && size == NULL)))
        code = ACL_INVALID_PARAM;
    if (code != 0)
        return call_end(code);
    blocks_read();
    const struct block *block = block_at((uintptr_t)p);
    if (block == NULL || !block_on_device(block))
        code = call_fail(ACL_RT_PARAM_INVALID, "aclrtMemGetAddressRange: %p is not device memory", p);
    if (code == 0 && base != NULL)
        *base = (void *)block->start;
    if (code == 0 && size != NULL)
        *size = block->size;
    blocks_unlock();
    return call_end(code);
}
