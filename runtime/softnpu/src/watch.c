/* Watched memory: a test marks what its driver has handed back; whatever the software NPU writes there
 * later is a violation. */
#include "hccl.h"
#include "watch.h"

#define MAX_WATCHES 64

static struct { uintptr_t start; size_t length; } watches[MAX_WATCHES];
static size_t watch_count; /* atomic: most programs watch nothing */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Peers check before they write whether memory is watched, and count such writes. */
static void tell_peers(void)
{
    uintptr_t starts[MAX_WATCHES];
    size_t lengths[MAX_WATCHES];
    for (size_t i = 0; i < watch_count; i++) {
        starts[i] = watches[i].start;
        lengths[i] = watches[i].length;
    }
    share_watch(starts, lengths, watch_count);
}

void watch_hear(void)
{
    uint64_t hits = share_hits();
    if (hits > 0)
        violation("peers wrote %llu pieces into watched memory: it had been handed back", (unsigned long long)hits);
}

bool watch_add(uintptr_t start, size_t length)
{
    pthread_mutex_lock(&lock);
    bool room = watch_count < MAX_WATCHES;
    if (room) {
        watches[watch_count].start = start;
        watches[watch_count].length = length;
        __atomic_store_n(&watch_count, watch_count + 1, __ATOMIC_RELEASE);
        tell_peers();
    }
    pthread_mutex_unlock(&lock);
    return room;
}

bool watch_remove(uintptr_t start)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < watch_count && !found; i++)
        if (watches[i].start == start) {
            watches[i] = watches[watch_count - 1];
            __atomic_store_n(&watch_count, watch_count - 1, __ATOMIC_RELEASE);
            tell_peers();
            found = true;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

void memory_written(uintptr_t address, size_t length)
{
    if (__atomic_load_n(&watch_count, __ATOMIC_ACQUIRE) == 0)
        return;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < watch_count; i++)
        if (address < watches[i].start + watches[i].length && watches[i].start < address + length)
            violation("%zu bytes at %#lx were written, which is watched memory: it had been handed back", length,
                      (unsigned long)address);
    pthread_mutex_unlock(&lock);
}
