/* Faults below the transfers: failing, hanging and lost ones, and those that land late. */
#include "hccl.h"

static int byte_at(const unsigned char *device)
{
    unsigned char got;
    download(&got, device, 1);
    return got;
}

static void until_told(struct end *end)
{
    await(end);
    tear_down(end);
}

static void finish(struct end *e)
{
    step(e);
    tear_down(e);
    join(e);
}

void batch_faults(void)
{
    struct end e = pair(2 * MEGABYTE, until_told);
    op_t one = op(e.pool, e.theirs, MEGABYTE);
    faults("call:sym=HcclBatchPut,nth=2,code=12");
    OK(HcclBatchPut(e.comm, 1, &one, 1, e.stream));
    CODE(12, HcclBatchPut(e.comm, 1, &one, 1, e.stream));
    OK(aclrtSynchronizeStream(e.stream));
    faults("done:fail=2,code=507057");
    OK(HcclBatchPut(e.comm, 1, &one, 1, e.stream));
    OK(aclrtSynchronizeStream(e.stream));
    OK(HcclBatchPut(e.comm, 1, &one, 1, e.stream));
    CODE(507057, aclrtSynchronizeStream(e.stream));
    expect_none();
    finish(&e);
}

static void link_lost(const char *rule, int code, int async_wanted)
{
    struct end e = pair(2 * MEGABYTE, until_told);
    op_t one = op(e.pool, e.theirs, MEGABYTE);
    int async;
    faults(rule);
    OK(HcclBatchPut(e.comm, 1, &one, 1, e.stream));
    OK(aclrtSynchronizeStream(e.stream));
    OK(HcclBatchPut(e.comm, 1, &one, 1, e.stream)); /* this one finds the link gone */
    if (code == 507046)
        CODE(code, aclrtSynchronizeStreamWithTimeout(e.stream, 20));
    else
        CODE(code, aclrtSynchronizeStream(e.stream));
    OK(HcclGetCommAsyncError(e.comm, &async));
    CHECK(async == async_wanted);
    OK(aclrtStreamAbort(e.stream));
    expect_none();
    finish(&e);
}

/* The first rule has no links left to take down. */
void link_fails(void) { link_lost("link:peer=pair,down_after_ops=0,links=0;link:peer=pair,down_after_ops=1,links=1,mode=error", 507057, 21); }
void link_hangs(void) { link_lost("link:peer=pair,down_after_bytes=1048576,mode=hang", 507046, 21); }
void link_is_silent(void) { link_lost("link:peer=*,down_after_ops=1,mode=silent", 507046, 0); }

/* A batch that is aborted after it has begun. */
static void abort_posted(struct end *e)
{
    op_t one = op(e->pool, e->theirs, e->size);
    OK(aclrtMemset(e->pool, e->size, 1, e->size));
    OK(HcclBatchPut(e->comm, 1, &one, 1, e->stream));
    while (stat_of("injected[done:hang=1]") == 0)
        usleep(200);
    OK(aclrtStreamAbort(e->stream));
    CHECK(stat_of("live.late_transfers") + stat_of("late_landings") > 0);
}

static void landed(struct end *end)
{
    int wanted;
    hear(end, &wanted, sizeof wanted);
    CHECK(byte_at(end->pool) == wanted && byte_at(end->pool + end->size - 1) == wanted);
    step(end);
    until_told(end);
}

static void ask(struct end *e, int wanted)
{
    tell(e, &wanted, sizeof wanted);
    await(e);
}

static void until_landed(void)
{
    while (stat_of("live.late_transfers") > 0)
        usleep(1000);
}

void late_landing(void)
{
    struct end e = pair(2 * MEGABYTE, landed);
    faults("done:hang=1;late:ms=30,p=1");
    abort_posted(&e);
    until_landed();
    CHECK(stat_of("late_landings") == 1);
    ask(&e, 1); /* after the abort, and yet it lands */
    expect_none();
    finish(&e);
}

/* Destroying the communicator first prevents it: nothing lands any more. */
void late_but_destroyed(void)
{
    struct end e = pair(2 * MEGABYTE, landed);
    set("residual_ms=1000");
    faults("done:hang=1;late:ms=100000,p=1"); /* no later than R */
    abort_posted(&e);
    OK(HcclCommUnbindMem(e.comm, e.handle));
    OK(HcclCommDestroy(e.comm));
    until_landed();
    CHECK(stat_of("late_landings") == 0);
    ask(&e, 0);
    expect_none();
    step(&e);
    join(&e);
}

void late_beyond_r(void)
{
    struct end e = pair(2 * MEGABYTE, landed);
    set("residual_ms=20");
    faults("done:hang=1;late:ms=10,p=1,beyond_r=1");
    abort_posted(&e);
    OK(HcclCommUnbindMem(e.comm, e.handle));
    OK(HcclCommDestroy(e.comm));
    until_landed();
    ask(&e, 1); /* whatever was destroyed: no driver can prevent this */
    step(&e);
    join(&e);
}

/* A batch that was posted and never rung stays in the queue pair; a later batch releases it. */
void after_abort(void)
{
    struct end e = pair(2 * MEGABYTE, landed);
    op_t first = op(e.pool, e.theirs, 4096), second = op(e.pool, e.theirs, e.size), third = op(e.pool, e.theirs, 64);
    OK(aclrtMemset(e.pool, e.size, 1, e.size));
    faults("done:hang=1");
    OK(HcclBatchGet(e.comm, 1, &first, 1, e.stream));
    OK(HcclBatchPut(e.comm, 1, &second, 1, e.stream)); /* behind the one that hangs */
    while (stat_of("injected[done:hang=1]") == 0)
        usleep(200);
    OK(aclrtStreamAbort(e.stream));
    expect_none();
    OK(HcclBatchGet(e.comm, 1, &third, 1, e.stream));
    expect_violation("used after an abort");
    OK(aclrtSynchronizeStream(e.stream));
    ask(&e, 1); /* the second landed by way of the third */
    finish(&e);
}

void timing(void)
{
    void *before, *after;
    float ms;
    op_t ops[64];
    set("model=roce-a2");
    struct end e = pair(2 * MEGABYTE, until_told);
    OK(aclrtCreateEvent(&before));
    OK(aclrtCreateEvent(&after));
    for (int i = 0; i < 64; i++)
        ops[i] = op(e.pool + 4096 * i, e.theirs + 4096 * i, 4096);
    OK(aclrtRecordEvent(before, e.stream));
    OK(HcclBatchPut(e.comm, 1, ops, 64, e.stream));
    OK(aclrtRecordEvent(after, e.stream));
    OK(aclrtSynchronizeStream(e.stream));
    OK(aclrtEventElapsedTime(&ms, before, after));
    CHECK(ms >= 64 * 0.023f + 0.02f); /* 23 us each and the base, whatever the size */
    OK(aclrtDestroyEvent(before));
    OK(aclrtDestroyEvent(after));
    finish(&e);
}
