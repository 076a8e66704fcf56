/* Links: what a peer lets us reach, whether the access is still valid, and whether the peer still exists. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "hccl.h"

/* Returns which way connects two ends of a pair: by server, super pod, chip and HCCL_INTRA_ROCE_ENABLE. */
bool link_chosen_hccs(const char *server, const char *pod, const char *other_server, const char *other_pod)
{
    const struct rule *rule = fault_rule("soc", NULL);
    const char *soc = rule != NULL && rule_value(rule, "name") != NULL ? rule_value(rule, "name") : settings.soc;
    if (environment_number("HCCL_INTRA_ROCE_ENABLE", 0) == 1)
        return false;
    if (strstr(soc, "910B") != NULL)
        return strcmp(server, other_server) == 0;
    return strstr(soc, "910_93") != NULL && strcmp(pod, other_pod) == 0;
}

void link_drop(struct link *link)
{
    if (link == NULL || --link->references > 0)
        return;
    if (link->device != NULL)
        munmap(link->device, link->device_length);
    if (link->host != NULL)
        munmap(link->host, link->host_length);
    if (link->share != NULL)
        munmap(link->share, sizeof *link->share);
    if (link->socket >= 0)
        close(link->socket);
    free(link->exports);
    free(link);
}

void link_close(struct link *link)
{
    if (link == NULL)
        return;
    __atomic_store_n(&link->closed, true, __ATOMIC_RELEASE);
    shutdown(link->socket, SHUT_RDWR);
    link_drop(link);
}

static bool at_end(const struct link *link)
{
    char byte;
    ssize_t n = recv(link->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static bool stands(const struct link *link, uint32_t slot, uint64_t generation)
{
    struct slot *s = &link->share->slots[slot];
    int64_t revoked = __atomic_load_n(&s->revoked_at, __ATOMIC_SEQ_CST);
    bool same = __atomic_load_n(&s->generation, __ATOMIC_ACQUIRE) == generation;
    if (revoked == 0)
        return same;
    /* A mapping over HCCS belongs to the initiator: memory that the target revokes stays reachable for a while. */
    return link->hccs && now_ns() < revoked + settings.hccs_linger_ms * 1000000;
}

bool link_peer_dead(const struct link *link)
{
    bool ended = __atomic_load_n(&link->share->slots[link->comm_slot].revoked_at, __ATOMIC_ACQUIRE) != 0 ||
                 __atomic_load_n(&link->share->slots[link->comm_slot].generation, __ATOMIC_ACQUIRE) != link->comm_generation;
    return !ended && at_end(link);
}

bool link_gone(const struct link *link) { return at_end(link); }

static void count(struct link *link, const struct export *export, int by)
{
    __atomic_add_fetch(&link->moving, by, __ATOMIC_SEQ_CST);
    if (link->hccs)
        return; /* revoked memory stays reachable there, so there is nothing to wait for */
    __atomic_add_fetch(&link->share->slots[link->comm_slot].arriving, (uint32_t)by, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&link->share->slots[export->slot].arriving, (uint32_t)by, __ATOMIC_SEQ_CST);
}

/* Count first and check then, so that a process that has revoked memory and finds nothing counted can rely on it. A NIC
 * drops requests that arrive after their queue pair is gone; here a thread may be delayed between the check and the
 * copy. */
bool link_enter(struct link *link, const struct export *export)
{
    count(link, export, 1);
    if (!__atomic_load_n(&link->closed, __ATOMIC_SEQ_CST) && link_allows(link, export))
        return true;
    count(link, export, -1);
    return false;
}

void link_leave(struct link *link, const struct export *export) { count(link, export, -1); }

bool link_allows(const struct link *link, const struct export *export)
{
    return stands(link, link->comm_slot, link->comm_generation) && stands(link, export->slot, export->generation);
}

const struct export *link_export(const struct link *link, uint64_t address, uint64_t length)
{
    for (size_t i = 0; i < link->export_count; i++) {
        const struct export *e = &link->exports[i];
        if (address >= e->address && address - e->address <= e->size && length <= e->size - (address - e->address))
            return e;
    }
    return NULL;
}

static void check_watches(const struct link *link, uint64_t address, size_t n)
{
    uint32_t count = __atomic_load_n(&link->share->watch_count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < count && i < 64; i++) {
        uint64_t start = __atomic_load_n(&link->share->watched[i].start, __ATOMIC_ACQUIRE);
        uint64_t length = __atomic_load_n(&link->share->watched[i].length, __ATOMIC_ACQUIRE);
        if (address < start + length && start < address + n)
            __atomic_add_fetch(&link->share->watch_hits, 1, __ATOMIC_ACQ_REL);
    }
}

/* Memory that is in no arena is copied by the kernel, from process to process. */
static int copy_process(const struct link *link, uint64_t address, unsigned char *local, size_t n, bool put)
{
    struct iovec here = {local, n}, there = {(void *)address, n};
    ssize_t moved = put ? process_vm_writev(link->pid, &here, 1, &there, 1, 0) : process_vm_readv(link->pid, &here, 1, &there, 1, 0);
    if (moved == (ssize_t)n)
        return 0;
    note("process %d: %zu bytes at %#lx: %s", link->pid, n, (unsigned long)address, strerror(errno));
    return ACL_RT_SUSPECT_REMOTE_ERROR;
}

int link_copy(const struct link *link, const struct export *export, uint64_t address, unsigned char *local, size_t n, bool put)
{
    int code = 0;
    unsigned char *map = export->via == VIA_DEVICE ? link->device : link->host;
    unsigned char *remote = map + export->offset + (address - export->address);
    if (export->via == VIA_PROCESS)
        code = copy_process(link, address, local, n, put);
    else if (put)
        bytes_copy(remote, local, n);
    else
        bytes_copy(local, remote, n);
    if (put && code == 0)
        check_watches(link, address, n);
    return code;
}
