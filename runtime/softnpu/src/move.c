/* Moving bytes, in pieces of 4 KiB. Before each piece it is checked whether the move is still allowed, and after each
 * piece the thread yields, so that a program that reads too early sees torn data here and not only on hardware. */
#include <sched.h>

#include "npu.h"

/* Relaxed atomic words: two devices may write the same memory at once, which is a mistake of the program and no data
 * race of this library. A word has 8 bytes if both addresses allow it. */
void bytes_copy(unsigned char *to, const unsigned char *from, size_t n)
{
    size_t i = 0;
    if (((uintptr_t)to | (uintptr_t)from) % sizeof(uint64_t) == 0)
        for (; i + sizeof(uint64_t) <= n; i += sizeof(uint64_t))
            __atomic_store_n((uint64_t *)(to + i), __atomic_load_n((const uint64_t *)(from + i), __ATOMIC_RELAXED),
                             __ATOMIC_RELAXED);
    for (; i < n; i++)
        __atomic_store_n(to + i, __atomic_load_n(from + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

void bytes_fill(unsigned char *to, unsigned char value, size_t n)
{
    size_t i = 0;
    for (; i < n && (uintptr_t)(to + i) % sizeof(uint64_t) != 0; i++)
        __atomic_store_n(to + i, value, __ATOMIC_RELAXED);
    uint64_t word = UINT64_C(0x0101010101010101) * value;
    for (; i + sizeof word <= n; i += sizeof word)
        __atomic_store_n((uint64_t *)(to + i), word, __ATOMIC_RELAXED);
    for (; i < n; i++)
        __atomic_store_n(to + i, value, __ATOMIC_RELAXED);
}

static int freed(const struct stretch *stretch)
{
    violation("use after free: a task in flight touches %zu bytes at %#lx that were freed", stretch->length,
              (unsigned long)stretch->address);
    return ACL_RT_DEVICE_MEM_ERROR;
}

/* Returns 0 and the length of the next piece of a task, or the reason why there is none. A length of 0 ends the task
 * without an error of its own, because the rule that cut it off has the code. */
static int next_piece(struct task *task, uint64_t left, uint64_t *length)
{
    *length = left < PIECE ? left : PIECE;
    if (task == NULL)
        return 0;
    if (task_cancelled(task))
        return ACL_RT_STREAM_ABORT;
    if (!task_may_move(task, length))
        *length = 0;
    return 0;
}

int move_stretch(struct task *task, const struct stretch *to, const struct stretch *from)
{
    for (size_t offset = 0; offset < to->length;) {
        uint64_t n;
        int code = next_piece(task, to->length - offset, &n);
        if (code != 0 || n == 0)
            return code;
        blocks_read();
        unsigned char *target = stretch_inner(to, offset, n), *source = stretch_inner(from, offset, n);
        if (target != NULL && source != NULL)
            bytes_copy(target, source, n);
        blocks_unlock();
        if (target == NULL || source == NULL)
            return freed(target == NULL ? to : from);
        memory_written(to->address + offset, n);
        offset += n;
        sched_yield();
    }
    return 0;
}

int fill_stretch(struct task *task, const struct stretch *to, unsigned char value)
{
    for (size_t offset = 0; offset < to->length;) {
        uint64_t n;
        int code = next_piece(task, to->length - offset, &n);
        if (code != 0 || n == 0)
            return code;
        blocks_read();
        unsigned char *target = stretch_inner(to, offset, n);
        if (target != NULL)
            bytes_fill(target, value, n);
        blocks_unlock();
        if (target == NULL)
            return freed(to);
        memory_written(to->address + offset, n);
        offset += n;
    }
    return 0;
}
