/* HcclCommPrepare: connects to every peer and exchanges the regions that are bound at that moment. */
#include <stdlib.h>
#include <time.h>

#include "hccl.h"

#define HUGE (2 * MIB)

static bool all_hccs(const struct communicator *c, uint32_t peer)
{
    const struct rank *me = &c->ranks[c->rank], *other = &c->ranks[peer];
    return link_chosen_hccs(me->server, me->pod, other->server, other->pod);
}

/* Over HCCS only device memory is exported, and it should be of whole 2 MiB pages. */
static struct export *exports_for(const struct communicator *c, uint32_t peer, size_t *count)
{
    struct export *exports = calloc(c->bound_count + 1, sizeof *exports);
    bool hccs = all_hccs(c, peer);
    *count = 0;
    for (size_t i = 0; exports != NULL && i < c->bound_count; i++) {
        const struct registration *r = c->bound[i];
        if (hccs && r->type == HCCL_MEM_HOST)
            continue;
        if (hccs && (r->start % HUGE != 0 || r->size % HUGE != 0))
            violation("memory exported over HCCS is not of whole 2 MiB pages: %zu bytes at %#lx", r->size, (unsigned long)r->start);
        exports[(*count)++] = r->told;
    }
    return exports;
}

static int by_rule(void)
{
    for (const struct rule *next = NULL; (next = fault_rule("prepare", next)) != NULL;) {
        struct rule *rule = (struct rule *)next;
        int64_t delay = rule_number(rule, "delay", 0);
        struct timespec t = {.tv_sec = delay / 1000, .tv_nsec = delay % 1000 * 1000000};
        if (delay > 0) {
            rule_note(rule, "prepare is slow");
            pthread_mutex_unlock(&npu_lock);
            nanosleep(&t, NULL);
            pthread_mutex_lock(&npu_lock);
        }
        if (rule_value(rule, "fail") != NULL && rule_hit(rule, "fail")) {
            rule_note(rule, "prepare fails");
            return (int)rule_number(rule, "code", HCCL_E_TIMEOUT);
        }
    }
    return 0;
}

/* Called with the lock, which it gives up while it waits for the peer. A communicator that prepares is not destroyed.
 */
int comm_meet(struct communicator *c, uint32_t peer, int64_t deadline, bool exporting)
{
    struct meeting meeting;
    size_t count = 0;
    int code;
    struct export *exports = exporting ? exports_for(c, peer, &count) : NULL;
    comm_meeting(c, peer, &meeting);
    c->preparing = true;
    pthread_mutex_unlock(&npu_lock);
    struct link *link = meet(&meeting, exports, count, c->slot, c->generation, deadline, &code);
    pthread_mutex_lock(&npu_lock);
    c->preparing = false;
    free(exports);
    c->links[peer] = link;
    return code == HCCL_E_TIMEOUT ? call_fail(code, "rank %u did not come to communicator %s in time", peer, c->name) : code;
}

/* Peers in order of rank, so that all processes reach the same pair first. */
static int meet_all(struct communicator *c, int64_t deadline)
{
    for (uint32_t peer = 0; peer < c->count; peer++) {
        int code = peer == c->rank || c->links[peer] != NULL ? 0 : comm_meet(c, peer, deadline, true);
        if (code != 0)
            return code;
    }
    c->prepared = true;
    return 0;
}

/* Connections made before one of them failed are closed, so that both ends start again. */
static void forget(struct communicator *c)
{
    for (uint32_t peer = 0; peer < c->count; peer++) {
        link_close(c->links[peer]);
        c->links[peer] = NULL;
    }
}

HcclResult HcclCommPrepare(HcclComm comm, const HcclPrepareConfig *config, const int timeoutSec)
{
    int code = hccl_begin(SYM_HcclCommPrepare, NEEDS_CONTEXT);
    struct communicator *c = code == 0 ? comm_find(comm, &code) : NULL;
    if (code == 0 && config == NULL)
        code = HCCL_E_PTR;
    if (code == 0 && (timeoutSec <= -2 || config->topoType != 0))
        code = call_fail(HCCL_E_PARA, "timeout %d or topology %d", timeoutSec, config->topoType);
    if (code == 0 && c->preparing)
        code = call_fail(HCCL_E_PARA, "communicator %s is being prepared by another thread", c->name);
    if (code != 0 || c->prepared)
        return hccl_end(code);
    int64_t seconds = timeoutSec == 0 ? environment_number("HCCL_CONNECT_TIMEOUT", 120) : timeoutSec;
    c->preparing = true;
    code = by_rule();
    c->preparing = false;
    if (code == 0)
        code = meet_all(c, after_ms(seconds < 0 ? -1 : seconds * 1000));
    if (code != 0)
        forget(c);
    return hccl_end(code);
}
