/* HcclBatchPut and HcclBatchGet: the checks of a call, in the vendor's order, and the task that moves the bytes. */
#include <stdlib.h>
#include <string.h>

#include "hccl.h"

struct batch { struct task task; struct work *work; int64_t model_ns; };

static uint64_t element_size(int type)
{
    switch (type) {
    case 0: case 7: case 14: case 15: case 16: case 17: return 1;
    case 1: case 3: case 8: case 11: return 2;
    case 2: case 4: case 9: return 4;
    case 5: case 6: case 10: return 8;
    case 12: return 16;
    }
    return 0;
}

static int check_call(struct communicator *c, uint32_t remote, const HcclOneSideOpDesc *desc, uint32_t count, void *stream)
{
    if (desc == NULL || stream == NULL)
        return HCCL_E_PTR;
    if (remote == c->rank || remote >= c->count)
        return call_fail(HCCL_E_PARA, "rank %u is this one, or none", remote);
    if (c->links[remote] == NULL || c->preparing)
        return call_fail(HCCL_E_NOT_FOUND, "communicator %s has no connection to rank %u yet", c->name, remote);
    int64_t most = fault_number("limit", "desc", settings.descriptors);
    if (count > most)
        return call_fail(HCCL_E_PARA, "%u descriptors; at most %lld", count, (long long)most);
    return c->nic_closed ? HCCL_E_NETWORK : 0;
}

static int check_element(struct communicator *c, struct link *link, const HcclOneSideOpDesc *d, size_t i, struct element *e)
{
    uint64_t size = element_size(d->dataType);
    if (d->localAddr == NULL || d->remoteAddr == NULL)
        return call_fail(HCCL_E_PTR, "descriptor %zu: an address is null", i);
    if (size == 0 || d->count == 0 || d->count > UINT64_MAX / size)
        return call_fail(HCCL_E_PARA, "descriptor %zu: count %llu of data type %d", i, (unsigned long long)d->count, d->dataType);
    *e = (struct element){.local = (uintptr_t)d->localAddr, .remote = (uintptr_t)d->remoteAddr, .bytes = d->count * size};
    if (!comm_bound(c, e->local, e->bytes) || stretch_make(&e->here, d->localAddr, e->bytes, SIDE_ANY, "local memory") != 0)
        return call_fail(HCCL_E_INTERNAL, "descriptor %zu: %#lx is not in memory bound to communicator %s", i, (unsigned long)e->local,
                         c->name);
    const struct export *export = link_export(link, e->remote, e->bytes);
    if (export == NULL)
        return call_fail(HCCL_E_INTERNAL, "descriptor %zu: %#lx is not in memory that the peer gave to this communicator", i,
                         (unsigned long)e->remote);
    e->export = *export;
    return 0;
}

static bool rule_is_for(const struct rule *rule, const struct communicator *c)
{
    const char *peer = rule_value(rule, "peer");
    return !c->up_again && rule_value(rule, "up") == NULL && (peer == NULL || strcmp(peer, "*") == 0 || strcmp(peer, c->name) == 0);
}

/* Applies rules that take a link down: after a number of batches or bytes, and in one of three ways. */
static void strike_link(struct communicator *c, struct link *link, uint64_t bytes)
{
    for (const struct rule *next = NULL; (next = fault_rule("link", next)) != NULL;) {
        struct rule *rule = (struct rule *)next;
        int64_t ops = rule_number(rule, "down_after_ops", INT64_MAX), most = rule_number(rule, "down_after_bytes", INT64_MAX);
        if (!rule_is_for(rule, c))
            continue;
        uint64_t seen = rule_seen(rule), moved = rule_add(rule, bytes);
        bool spent = !link->down && (int64_t)rule_hits(rule) >= rule_number(rule, "links", INT64_MAX);
        if (spent || ((int64_t)seen <= ops && (int64_t)moved <= most))
            continue;
        const char *mode = rule_value(rule, "mode");
        link->hangs = mode != NULL && strcmp(mode, "error") != 0;
        link->silent = mode != NULL && strcmp(mode, "silent") == 0;
        c->async_error = link->silent ? 0 : HCCL_E_REMOTE;
        if (!link->down)
            rule_note(rule, "the link is lost");
        __atomic_store_n(&link->down, true, __ATOMIC_RELEASE);
    }
}

static int run(struct task *task)
{
    struct batch *batch = (struct batch *)task;
    int64_t start = now_ns();
    int code = work_move(batch->work, task);
    if (code == 0 && batch->model_ns > 0 && !task_pause(task, start + batch->model_ns))
        code = ACL_RT_STREAM_ABORT;
    return code;
}

/* Applies an abort to a batch. One that had begun may land late. One whose bell was never rung stays in the queue pair,
 * where a later batch releases it. Either way the communicator accepts no more work. */
static bool aborted(struct batch *batch, struct communicator *c)
{
    struct work *work = batch->work;
    bool begun = work->element > 0 || work->offset > 0 || work->piece > 0 || batch->task.cancelled;
    if (c != NULL)
        c->condemned = true;
    if (begun)
        return late_takes(work);
    if (c == NULL || work->link->hccs)
        return false;
    work->next = c->unrung;
    c->unrung = work;
    work_hold(work, false);
    return true;
}

static void end(struct task *task, int code)
{
    struct batch *batch = (struct batch *)task;
    struct work *work = batch->work;
    struct communicator *c = handle_find(OBJECT_COMMUNICATOR, work->comm);
    work_leave(work);
    if (c != NULL)
        c->in_flight--;
    if (code == 0)
        report_count(work->put ? "bytes_put" : "bytes_got", work->total);
    if (code != 0 && c != NULL && code != ACL_RT_STREAM_ABORT && work->link->down && !work->link->silent)
        c->async_error = HCCL_E_REMOTE;
    if (code != ACL_RT_STREAM_ABORT || !aborted(batch, c)) {
        work_hold(work, false);
        work_free(work);
    }
    free(batch);
}

static void check_use(struct communicator *c, struct stream *stream, const struct work *work)
{
    if (c->condemned)
        violation("communicator %s is used after an abort: what was posted before may land now", c->name);
    if (c->in_flight > 0 && c->stream != stream->handle)
        violation("two streams at once on communicator %s", c->name);
    if (work_overlaps(work))
        violation("a batch of communicator %s writes where another in flight writes", c->name);
}

static int submit(struct communicator *c, struct stream *stream, struct work *work)
{
    struct task *task = task_new(sizeof(struct batch), TASK_BATCH);
    if (task == NULL) {
        work_free(work);
        return HCCL_E_MEMORY;
    }
    struct batch *batch = (struct batch *)task;
    batch->work = work;
    batch->model_ns = model_ns(0, true);
    for (size_t i = 0; i < work->count; i++) {
        batch->model_ns += model_ns(work->elements[i].bytes, false);
        work->total += work->elements[i].bytes;
    }
    task->run = run;
    task->end = end;
    c->stream = stream->handle;
    c->in_flight++;
    work_hold(work, true);
    work_enter(work);
    return stream_submit(stream, task);
}

/* Batches that earlier aborts left unrung are released first. */
static void release_unrung(struct communicator *c, struct stream *stream)
{
    while (c->unrung != NULL) {
        struct work *work = c->unrung;
        c->unrung = work->next;
        work->next = NULL;
        work->total = 0;
        submit(c, stream, work);
    }
}

/* Elements before a faulty one stay queued, without a fence: a failed batch may still have effects. */
static int post(struct communicator *c, uint32_t remote, const HcclOneSideOpDesc *desc, uint32_t count, struct stream *stream, bool put)
{
    struct link *link = c->links[remote];
    struct work *work = work_new(link, c->handle, put, count);
    if (work == NULL)
        return HCCL_E_MEMORY;
    int code = 0;
    uint64_t bytes = 0;
    for (; work->count < count && code == 0; work->count += code == 0)
        if ((code = check_element(c, link, &desc[work->count], work->count, &work->elements[work->count])) == 0)
            bytes += work->elements[work->count].bytes;
    if (code != 0 && work->count == 0) {
        work_free(work);
        return code;
    }
    check_use(c, stream, work);
    strike_link(c, link, bytes);
    report_count("batches", 1);
    report_count("descriptors", work->count);
    if (fault_number("pieces", "reorder", 0) != 0)
        work_shuffle(work);
    release_unrung(c, stream);
    int queued = submit(c, stream, work);
    return code != 0 ? code : queued;
}

static int transfer(enum symbol symbol, HcclComm comm, uint32_t remote, HcclOneSideOpDesc *desc, uint32_t count, void *stream, bool put)
{
    int code = hccl_begin(symbol, NEEDS_CONTEXT);
    struct communicator *c = code == 0 ? comm_find(comm, &code) : NULL;
    if (code == 0)
        code = check_call(c, remote, desc, count, stream);
    struct stream *on = code == 0 ? stream_of(stream, &code) : NULL;
    if (code == 0)
        code = post(c, remote, desc, count, on, put);
    return hccl_end(code);
}

HcclResult HcclBatchPut(HcclComm comm, uint32_t remoteRank, HcclOneSideOpDesc *desc, uint32_t descNum, void *stream)
{
    return transfer(SYM_HcclBatchPut, comm, remoteRank, desc, descNum, stream, true);
}

HcclResult HcclBatchGet(HcclComm comm, uint32_t remoteRank, HcclOneSideOpDesc *desc, uint32_t descNum, void *stream)
{
    return transfer(SYM_HcclBatchGet, comm, remoteRank, desc, descNum, stream, false);
}
