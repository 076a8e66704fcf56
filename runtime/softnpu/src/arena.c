/* Arenas: address ranges backed by a memory file, one for each device and one for pinned host memory. Each is mapped
 * twice: at the address that the program sees (for device memory without access rights, so that dereferencing a device
 * address crashes, as on hardware), and at the address that the software NPU uses. Other processes map the file to
 * reach the memory. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "npu.h"

#define HUGE (2 * MIB)

struct arena *host_arena;

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* Reserve more addresses than memory, so that freed addresses are not reused at once. */
static size_t addresses_for(size_t quota) { return round_up(quota < 256 * GIB ? quota * 4 : quota, HUGE) + HUGE; }

/* Begins at a multiple of 2 MiB, at an address that differs between processes. */
static unsigned char *map_aligned(int fd, size_t length, int protection)
{
    size_t skip = random_below(1024) * HUGE;
    unsigned char *room = mmap(NULL, length + HUGE + skip, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    unsigned char *start = (unsigned char *)round_up((uintptr_t)room + skip, HUGE);
    if (mmap(start, length, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(room, length + HUGE + skip);
        return NULL;
    }
    return start;
}

struct arena *arena_new(int device, size_t quota)
{
    struct arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL)
        return NULL;
    arena->device = device;
    arena->quota = quota;
    arena->length = addresses_for(quota);
    arena->fd = memfd_create(device < 0 ? "cannemu-host" : "cannemu-device", MFD_CLOEXEC);
    if (arena->fd >= 0 && ftruncate(arena->fd, (off_t)arena->length) == 0) {
        bool hidden = device >= 0 && settings.strict_memory != 0;
        arena->visible = (uintptr_t)map_aligned(arena->fd, arena->length, hidden ? PROT_NONE : PROT_READ | PROT_WRITE);
        arena->inner = map_aligned(arena->fd, arena->length, PROT_READ | PROT_WRITE);
    }
    if (arena->inner != NULL && arena->visible != 0)
        return arena;
    if (arena->fd >= 0)
        close(arena->fd);
    free(arena);
    return NULL;
}

bool arena_take(struct arena *arena, struct block *block, size_t align)
{
    size_t offset = block_gap(arena, arena->cursor, block->span, align);
    if (offset == SIZE_MAX)
        offset = block_gap(arena, 0, block->span, align);
    if (offset == SIZE_MAX)
        return false;
    arena->cursor = offset + block->span;
    block->arena = arena;
    block->start = arena->visible + offset;
    block->inner = arena->inner + offset;
    if (!block_insert(block))
        return false;
    arena->used += block->span;
    if (arena->used > arena->high)
        arena->high = arena->used;
    if (arena->device < 0)
        mprotect((void *)block->start, block->span, PROT_READ | PROT_WRITE);
    return true;
}

/* Makes freed memory unusable: host memory faults, large blocks lose their pages, small ones are overwritten. */
void arena_give(struct block *block)
{
    struct arena *arena = block->arena;
    arena->used -= block->span;
    if (block->span >= HUGE || arena->device < 0)
        fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, block->inner - arena->inner, (off_t)block->span);
    else
        bytes_fill(block->inner, 0xdd, block->span);
    if (arena->device < 0)
        mprotect((void *)block->start, block->span, PROT_NONE);
}
