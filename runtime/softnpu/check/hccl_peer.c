/* The other end: stopped, killed or gone, and what its messages and its silence do to memory. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

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

static void put(struct end *e, int wanted)
{
    op_t all = op(e->pool, e->theirs, e->size);
    OK(HcclBatchPut(e->comm, 1, &all, 1, e->stream));
    CODE(wanted, aclrtSynchronizeStream(e->stream));
}

/* One-sided: the peer's process takes no part. */
void target_stopped(void)
{
    int status;
    struct end e = pair(4 * MEGABYTE, until_told);
    CHECK(kill(e.child, SIGSTOP) == 0);
    CHECK(waitpid(e.child, &status, WUNTRACED) == e.child && WIFSTOPPED(status));
    put(&e, 0);
    op_t back = op(e.pool, e.theirs, MEGABYTE);
    OK(HcclBatchGet(e.comm, 1, &back, 1, e.stream));
    OK(aclrtSynchronizeStream(e.stream));
    CHECK(kill(e.child, SIGCONT) == 0);
    finish(&e);
}

static void kill_child(struct end *e)
{
    int status;
    CHECK(kill(e->child, SIGKILL) == 0 && waitpid(e->child, &status, 0) == e->child);
}

/* Killed while a batch is under way, which a rule holds until it is dead; then a new pair in its place. */
void target_killed(void)
{
    int async;
    struct end e = pair(2 * MEGABYTE, until_told);
    op_t all = op(e.pool, e.theirs, e.size);
    OK(HcclGetCommAsyncError(e.comm, &async));
    CHECK(async == 0);
    faults("done:hang=1");
    OK(HcclBatchPut(e.comm, 1, &all, 1, e.stream));
    while (stat_of("injected") == 0)
        usleep(200);
    kill_child(&e);
    release();
    CODE(507057, aclrtSynchronizeStream(e.stream));
    put(&e, 507057);
    OK(HcclGetCommAsyncError(e.comm, &async));
    CHECK(async == 21);
    OK(HcclCommUnbindMem(e.comm, e.handle));
    OK(HcclCommDestroy(e.comm));
    OK(aclrtDestroyStream(e.stream));
    OK(aclrtCreateStream(&e.stream));
    OK(HcclDeregisterGlobalMem(e.handle));
    expect_none();
}

void peer_gone_silently(void)
{
    static const struct { const char *setting; int async; } ways[] = {{"gone=silent", 0}, {"gone=hang", 21}};
    struct end e = pair(2 * MEGABYTE, until_told);
    op_t all = op(e.pool, e.theirs, e.size);
    int async;
    kill_child(&e);
    for (size_t i = 0; i < 2; i++) {
        set(ways[i].setting);
        OK(HcclBatchPut(e.comm, 1, &all, 1, e.stream));
        CODE(507046, aclrtSynchronizeStreamWithTimeout(e.stream, 20)); /* it would wait forever */
        OK(HcclGetCommAsyncError(e.comm, &async));
        CHECK(async == ways[i].async);
        OK(aclrtStreamAbort(e.stream));
        OK(aclrtSynchronizeStream(e.stream));
        if (i == 0)
            expect_none();
    }
}

static void binds_late(struct end *end)
{
    unsigned char *more = device_memory(2 * MEGABYTE);
    void *handle = registered(0, more, 2 * MEGABYTE);
    OK(HcclCommBindMem(end->comm, handle)); /* accepted, but the peer is never notified */
    tell(end, &more, sizeof more);
    await(end);
    OK(HcclCommUnbindMem(end->comm, handle));
    OK(HcclDeregisterGlobalMem(handle));
    OK(aclrtFree(more));
    tear_down(end);
}

void bound_late(void)
{
    unsigned char *more;
    struct end e = pair(2 * MEGABYTE, binds_late);
    hear(&e, &more, sizeof more);
    op_t one = op(e.pool, more, 64);
    CODE(4, HcclBatchPut(e.comm, 1, &one, 1, e.stream));
    finish(&e);
}

static void unbinds(struct end *end)
{
    OK(HcclCommUnbindMem(end->comm, end->handle));
    step(end);
    await(end);
    CHECK(byte_at(end->pool) == 1);
    OK(HcclDeregisterGlobalMem(end->handle));
    expect_violation("last registration");
    step(end);
    await(end);
    CHECK(byte_at(end->pool) == 1);
    OK(HcclCommDestroy(end->comm));
}

/* Unbinding only updates a table: the peer still reaches the memory. Deregistering ends the access. */
static void unbind_then_deregister(bool all)
{
    struct end e = pair(2 * MEGABYTE, unbinds);
    await(&e);
    OK(aclrtMemset(e.pool, e.size, 1, e.size));
    put(&e, 0);
    step(&e);
    await(&e);
    if (all) {
        OK(aclrtMemset(e.pool, e.size, 2, e.size));
        put(&e, 507057);
    }
    step(&e);
    join(&e);
}

void unbind_keeps(void) { unbind_then_deregister(false); }
void deregister_revokes(void) { unbind_then_deregister(true); }

static void destroys(struct end *end)
{
    await(end);
    OK(HcclCommUnbindMem(end->comm, end->handle));
    OK(HcclCommDestroy(end->comm));
    step(end);
    await(end);
    CHECK(byte_at(end->pool) == 0);
}

void destroy_revokes(void)
{
    struct end e = pair(2 * MEGABYTE, destroys);
    OK(aclrtMemset(e.pool, e.size, 1, e.size));
    step(&e);
    await(&e);
    put(&e, 507057);
    step(&e);
    join(&e);
}

static void destroys_over_hccs(struct end *end)
{
    await(end);
    OK(HcclCommUnbindMem(end->comm, end->handle));
    OK(HcclCommDestroy(end->comm));
    OK(HcclDeregisterGlobalMem(end->handle));
    step(end);
    await(end);
    CHECK(byte_at(end->pool) == 1);
}

/* Over HCCS the mapping belongs to the initiator, and stays usable for a while. */
void hccs_lingers(void)
{
    struct end e = pair_over(table_one_server, 2 * MEGABYTE, destroys_over_hccs);
    OK(aclrtMemset(e.pool, e.size, 1, e.size));
    set("hccs_linger_ms=1000000");
    step(&e);
    await(&e);
    put(&e, 0);
    set("hccs_linger_ms=0");
    put(&e, 507057);
    step(&e);
    join(&e);
}

static const char *host_ranks;
static bool host_expected;

static void with_host(struct end *end)
{
    start();
    OK(aclrtCreateStream(&end->stream));
    end->size = 2 * MEGABYTE;
    end->pool = device_memory(end->size);
    unsigned char *pinned = host_memory(end->size);
    unsigned char *own = mmap(NULL, MEGABYTE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *device_pointer, *more[2];
    OK(aclrtHostRegister(own, MEGABYTE, 0, &device_pointer));
    memset(own, 0, MEGABYTE);
    memset(pinned, 0, MEGABYTE);
    end->handle = registered(0, end->pool, end->size);
    more[0] = registered(1, pinned, end->size);
    more[1] = registered(1, own, MEGABYTE);
    end->comm = communicator(host_ranks, end->rank, "host");
    OK(HcclCommBindMem(end->comm, end->handle));
    OK(HcclCommBindMem(end->comm, more[0]));
    OK(HcclCommBindMem(end->comm, more[1]));
    prepare(end->comm);
    unsigned char *mine[2] = {pinned, own}, *theirs[2];
    tell(end, mine, sizeof mine);
    hear(end, theirs, sizeof theirs);
    if (end->rank == 0) {
        memset(pinned, 7, MEGABYTE);
        memset(own, 8, MEGABYTE);
        for (int i = 0; i < 2; i++) {
            op_t one = op(mine[i], theirs[i], MEGABYTE);
            CODE(host_expected ? 0 : 4, HcclBatchPut(end->comm, 1, &one, 1, end->stream));
        }
        CODE(0, aclrtSynchronizeStream(end->stream));
        step(end);
        await(end);
    } else {
        await(end);
        CHECK(pinned[MEGABYTE - 1] == (host_expected ? 7 : 0) && own[0] == (host_expected ? 8 : 0));
        step(end);
    }
    expect_none();
    for (int i = 0; i < 2; i++) {
        OK(HcclCommUnbindMem(end->comm, more[i]));
        OK(HcclDeregisterGlobalMem(more[i]));
    }
    OK(aclrtHostUnregister(own));
    OK(aclrtFreeHost(pinned));
    tear_down(end);
}

static void both_with_host(const char *ranks, bool expected)
{
    host_ranks = ranks;
    host_expected = expected;
    struct end e = split(with_host);
    with_host(&e);
    join(&e);
}

/* Host memory from the arenas, and of the program's own, which the kernel carries. */
void registered_host(void) { both_with_host(table, true); }
void host_target(void) { both_with_host(table_one_server, false); }

static void watches(struct end *end)
{
    char command[100];
    snprintf(command, sizeof command, "watch %p 4096", (void *)(end->pool + 8192));
    CHECK(cannemu_control(command, NULL, 0) == 0);
    step(end);
    await(end);
    expect_none();
    step(end);
    await(end);
    expect_violation("peers wrote 1 pieces");
    step(end);
    until_told(end);
}

void peer_writes_watched(void)
{
    struct end e = pair(2 * MEGABYTE, watches);
    await(&e);
    op_t one = op(e.pool, e.theirs, 8192);
    OK(HcclBatchPut(e.comm, 1, &one, 1, e.stream));
    OK(aclrtSynchronizeStream(e.stream));
    step(&e);
    await(&e);
    one = op(e.pool, e.theirs, 8193);
    OK(HcclBatchPut(e.comm, 1, &one, 1, e.stream));
    OK(aclrtSynchronizeStream(e.stream));
    step(&e);
    await(&e);
    finish(&e);
}
