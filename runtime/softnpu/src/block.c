/* The table of all memory that was allocated or registered, ordered by address. Copies look it up before each piece, so
 * it has a reader-writer lock of its own. Writers have priority: otherwise a few busy streams could delay aclrtMalloc
 * forever. */
#include <stdlib.h>
#include <string.h>

#include "npu.h"

static struct block **blocks;
static size_t count, room;
static uint64_t next_serial = 1;
static pthread_rwlock_t lock;

__attribute__((constructor)) static void block_init(void)
{
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
}

void blocks_read(void) { pthread_rwlock_rdlock(&lock); }
void blocks_write(void) { pthread_rwlock_wrlock(&lock); }
void blocks_unlock(void) { pthread_rwlock_unlock(&lock); }

static uintptr_t end_of(const struct block *block) { return block->start + block->span; }

/* The index of the first block that ends behind the address. */
static size_t index_from(uintptr_t address)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (end_of(blocks[middle]) > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct block *block_from(uintptr_t address)
{
    size_t i = index_from(address);
    return i < count ? blocks[i] : NULL;
}

struct block *block_at(uintptr_t address)
{
    struct block *block = block_from(address);
    return block != NULL && block->start <= address ? block : NULL;
}

struct block *block_next(size_t *cursor) { return *cursor < count ? blocks[(*cursor)++] : NULL; }

bool block_insert(struct block *block)
{
    size_t i = index_from(block->start);
    if (i < count && blocks[i]->start < end_of(block))
        return false;
    if (count == room) {
        size_t more = room == 0 ? 256 : room * 2;
        struct block **moved = realloc(blocks, more * sizeof(struct block *));
        if (moved == NULL)
            return false;
        blocks = moved;
        room = more;
    }
    memmove(&blocks[i + 1], &blocks[i], (count - i) * sizeof(struct block *));
    blocks[i] = block;
    count++;
    block->serial = next_serial++;
    return true;
}

struct block *block_remove(uintptr_t start, enum block_kind kind)
{
    size_t i = index_from(start);
    if (i == count || blocks[i]->start != start || blocks[i]->kind != kind)
        return NULL;
    struct block *block = blocks[i];
    count--;
    memmove(&blocks[i], &blocks[i + 1], (count - i) * sizeof(struct block *));
    return block;
}

size_t block_gap(struct arena *arena, size_t from, size_t span, size_t align)
{
    size_t offset = (from + align - 1) / align * align;
    for (size_t i = index_from(arena->visible + offset); offset + span <= arena->length; i++) {
        if (i == count || blocks[i]->start >= arena->visible + offset + span)
            return offset;
        offset = (end_of(blocks[i]) - arena->visible + align - 1) / align * align;
    }
    return SIZE_MAX;
}
