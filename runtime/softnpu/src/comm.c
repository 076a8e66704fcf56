/* Communicators: what they are bound to, and their end. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hccl.h"

struct communicator *comm_find(HcclComm comm, int *code)
{
    struct communicator *c = handle_find(OBJECT_COMMUNICATOR, comm);
    if (comm == NULL)
        *code = HCCL_E_PTR;
    else if (c == NULL)
        *code = call_fail(HCCL_E_PARA, "no such communicator: it was destroyed, or never was");
    return c;
}

static bool name_taken(const char *name, int device)
{
    struct communicator *c;
    for (size_t cursor = 0; (c = handle_next(OBJECT_COMMUNICATOR, &cursor)) != NULL;)
        if (c->device == device && strcmp(c->name, name) == 0)
            return true;
    return false;
}

/* Both ends must have been given the same ranks; the digest shows it. */
static uint64_t digest_of(const struct rank *ranks, uint32_t count)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (uint32_t i = 0; i < count; i++) {
        char text[300];
        snprintf(text, sizeof text, "%s|%s|%s|%d|%d;", ranks[i].server, ranks[i].address, ranks[i].pod, ranks[i].device, ranks[i].port);
        for (const char *at = text; *at != '\0'; at++)
            h = (h ^ (unsigned char)*at) * UINT64_C(1099511628211);
    }
    return h;
}

struct communicator *comm_new(const char *name, const struct rank *ranks, uint32_t count, uint32_t rank, int *code)
{
    int device = context_current()->device;
    *code = HCCL_E_PARA;
    if (rank >= count)
        return call_fail(0, "rank %u of %u", rank, count), NULL;
    if (name_taken(name, device))
        return call_fail(0, "there is a communicator %s on this device already", name), NULL;
    struct communicator *c = calloc(1, sizeof *c);
    *code = HCCL_E_MEMORY;
    if (c == NULL)
        return NULL;
    strcpy(c->name, name);
    memcpy(c->ranks, ranks, count * sizeof *ranks);
    c->device = device;
    c->rank = rank;
    c->count = count;
    c->digest = digest_of(ranks, count);
    c->handle = handle_new(OBJECT_COMMUNICATOR, c);
    if (c->handle == NULL || !share_take(&c->slot, &c->generation)) {
        handle_remove(c->handle);
        free(c);
        return NULL;
    }
    for (const struct rule *rule = NULL; (rule = fault_rule("link", rule)) != NULL;)
        c->up_again = c->up_again || rule_value(rule, "up") != NULL;
    *code = 0;
    return c;
}

void comm_meeting(const struct communicator *comm, uint32_t peer, struct meeting *meeting)
{
    const struct rank *low = &comm->ranks[comm->rank < peer ? comm->rank : peer];
    const struct rank *high = &comm->ranks[comm->rank < peer ? peer : comm->rank];
    *meeting = (struct meeting){.rank = comm->rank, .peer = peer, .digest = comm->digest, .device = comm->device};
    snprintf(meeting->name, sizeof meeting->name, "%s:%d-%s:%d-%s", low->address, low->port, high->address, high->port, comm->name);
    strcpy(meeting->server, comm->root ? settings.server : comm->ranks[comm->rank].server);
    strcpy(meeting->pod, comm->ranks[comm->rank].pod);
}

bool comm_bound(const struct communicator *comm, uintptr_t start, uint64_t size)
{
    for (size_t i = 0; i < comm->bound_count; i++) {
        const struct registration *r = comm->bound[i];
        if (start >= r->start && start - r->start <= r->size && size <= r->size - (start - r->start))
            return true;
    }
    return false;
}

bool comm_bind(struct communicator *comm, struct registration *registration)
{
    struct registration **more = realloc(comm->bound, (comm->bound_count + 1) * sizeof *more);
    if (more == NULL)
        return false;
    comm->bound = more;
    comm->bound[comm->bound_count++] = registration;
    registration->bindings++;
    report_live("bindings", 1);
    return true;
}

/* This only updates the table: the peer can still reach the memory. */
void comm_unbind(struct communicator *comm, struct registration *registration)
{
    for (size_t i = 0; i < comm->bound_count; i++)
        if (comm->bound[i] == registration) {
            comm->bound[i] = comm->bound[--comm->bound_count];
            registration->bindings--;
            report_live("bindings", -1);
            return;
        }
}

static bool busy_by_rule(void)
{
    for (const struct rule *rule = NULL; (rule = fault_rule("destroy", rule)) != NULL;)
        if (rule_seen((struct rule *)rule) <= (uint64_t)rule_number(rule, "busy", 0)) {
            rule_note((struct rule *)rule, "a communicator is busy");
            return true;
        }
    return false;
}

static size_t bound_globally(const struct communicator *c)
{
    size_t count = 0;
    for (size_t i = 0; i < c->bound_count; i++)
        count += c->bound[i]->comm == NULL;
    return count;
}

static void end(struct communicator *c)
{
    while (c->bound_count > 0) {
        struct registration *own = c->bound[0];
        comm_unbind(c, own);
        registration_end(own);
    }
    share_revoke(c->slot);
    for (uint32_t i = 0; i < c->count; i++)
        link_close(c->links[i]);
    while (c->unrung != NULL) {
        struct work *work = c->unrung;
        c->unrung = work->next;
        work_free(work);
    }
    handle_remove(c->handle);
    free(c->bound);
    free(c);
    pthread_cond_broadcast(&npu_changed);
}

#define STILL_MS 2000

/* Whether a piece is still being moved over the communicator: by us over any of its links, or by a peer that is not
 * gone. */
static bool moves(const struct communicator *c)
{
    bool peer = false;
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->links[i] == NULL)
            continue;
        if (__atomic_load_n(&c->links[i]->moving, __ATOMIC_SEQ_CST) != 0)
            return true;
        peer = peer || (!c->links[i]->hccs && !link_gone(c->links[i]));
    }
    return peer && !share_quiet(c->slot);
}

/* Lets no piece begin any more and waits for those in flight. Returns false if one does not end because its process is
 * stopped. */
static bool still(HcclComm comm, struct communicator **c)
{
    int64_t deadline = after_ms(STILL_MS);
    share_withdraw((*c)->slot);
    for (uint32_t i = 0; i < (*c)->count; i++)
        if ((*c)->links[i] != NULL)
            __atomic_store_n(&(*c)->links[i]->closed, true, __ATOMIC_SEQ_CST);
    while (*c != NULL && moves(*c)) {
        if (now_ns() > deadline)
            return false;
        pthread_mutex_unlock(&npu_lock);
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        pthread_mutex_lock(&npu_lock);
        *c = handle_find(OBJECT_COMMUNICATOR, comm);
    }
    return true;
}

static int destroy(HcclComm comm)
{
    struct communicator *c = handle_find(OBJECT_COMMUNICATOR, comm);
    if (c == NULL) {
        violation("HcclCommDestroy of a communicator that is destroyed, or never was: memory corruption on hardware");
        return HCCL_E_PARA;
    }
    if (c->half_closed)
        violation("HcclCommDestroy of %s after one that failed: it acts on a half-closed object", c->name);
    if (bound_globally(c) > 0) {
        c->half_closed = true;
        return call_fail(HCCL_E_PARA, "communicator %s has %zu bindings", c->name, c->bound_count);
    }
    if (busy_by_rule() || c->preparing || (c->in_flight > 0 && settings.destroy_waits == 0))
        return call_fail(HCCL_E_AGAIN, "communicator %s has %d batches in flight", c->name, c->in_flight);
    while (c != NULL && c->in_flight > 0) {
        condition_wait(&npu_changed, FOREVER);
        c = handle_find(OBJECT_COMMUNICATOR, comm);
    }
    if (c != NULL && !still(comm, &c))
        return call_fail(HCCL_E_AGAIN, "communicator %s: a piece of a peer that stands still is under way", c->name);
    if (c != NULL)
        end(c);
    return 0;
}

HcclResult HcclCommDestroy(HcclComm comm)
{
    int code = hccl_begin(SYM_HcclCommDestroy, comm == NULL ? NEEDS_INIT : NEEDS_CONTEXT);
    if (code == 0 && comm != NULL)
        code = destroy(comm);
    return hccl_end(code);
}
