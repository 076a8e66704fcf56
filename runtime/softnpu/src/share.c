/* The shared page: a slot for each registration and communicator that peers may use. Peers check it before each piece,
 * so revoking needs no message from them. */
#include <sys/mman.h>
#include <unistd.h>

#include "hccl.h"

static struct share *own;
static int file = -1;
static bool taken[SLOTS];

struct share *share_map(int of)
{
    void *mapped = mmap(NULL, sizeof(struct share), PROT_READ | PROT_WRITE, MAP_SHARED, of, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

int share_file(void)
{
    if (own != NULL)
        return file;
    file = memfd_create("cannemu-share", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, sizeof(struct share)) == 0)
        own = share_map(file);
    return own == NULL ? -1 : file;
}

bool share_take(uint32_t *slot, uint64_t *generation)
{
    if (share_file() < 0)
        return false;
    for (uint32_t i = 0; i < SLOTS; i++)
        if (!taken[i]) {
            taken[i] = true;
            *slot = i;
            *generation = __atomic_add_fetch(&own->slots[i].generation, 1, __ATOMIC_ACQ_REL);
            __atomic_store_n(&own->slots[i].revoked_at, 0, __ATOMIC_RELEASE);
            return true;
        }
    return false;
}

void share_withdraw(uint32_t slot)
{
    if (__atomic_load_n(&own->slots[slot].revoked_at, __ATOMIC_ACQUIRE) == 0)
        __atomic_store_n(&own->slots[slot].revoked_at, now_ns(), __ATOMIC_SEQ_CST);
}

bool share_quiet(uint32_t slot)
{
    return __atomic_add_fetch(&own->slots[slot].arriving, 0, __ATOMIC_SEQ_CST) == 0;
}

uint32_t share_arriving(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; own != NULL && i < SLOTS; i++)
        count += __atomic_load_n(&own->slots[i].arriving, __ATOMIC_ACQUIRE);
    return count;
}

/* A slot that is reused changes its generation, so it stays revoked for peers that know the old one. A slot in which a
 * peer died or is stopped is never reused. */
void share_revoke(uint32_t slot)
{
    share_withdraw(slot);
    taken[slot] = !share_quiet(slot);
}

void share_watch(const uintptr_t *starts, const size_t *lengths, size_t count)
{
    if (share_file() < 0)
        return;
    __atomic_store_n(&own->watch_count, 0, __ATOMIC_RELEASE);
    for (size_t i = 0; i < count && i < 64; i++) {
        __atomic_store_n(&own->watched[i].start, starts[i], __ATOMIC_RELEASE);
        __atomic_store_n(&own->watched[i].length, lengths[i], __ATOMIC_RELEASE);
    }
    __atomic_store_n(&own->watch_count, (uint32_t)count, __ATOMIC_RELEASE);
}

uint64_t share_hits(void) { return own == NULL ? 0 : __atomic_exchange_n(&own->watch_hits, 0, __ATOMIC_ACQ_REL); }
