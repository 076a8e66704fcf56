/* Putting and getting: bytes, limits, faulty descriptors, what may overlap. */
#include "hccl.h"

static void fill(unsigned char *pool, int value, size_t n) { OK(aclrtMemset(pool, n, value, n)); }

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

static void looks_and_ends(struct end *end)
{
    await(end);
    CHECK(byte_at(end->pool) == 1 && byte_at(end->pool + MEGABYTE - 1) == 1 && byte_at(end->pool + MEGABYTE) == 0);
    fill(end->pool, 2, end->size);
    step(end);
    until_told(end);
}

void put_and_get(void)
{
    struct end e = pair(4 * MEGABYTE, looks_and_ends);
    fill(e.pool, 1, e.size);
    op_t one = op(e.pool, e.theirs, MEGABYTE);
    OK(HcclBatchPut(e.comm, 1, &one, 1, e.stream));
    memset(&one, 0, sizeof one); /* was read before the call returned */
    OK(aclrtSynchronizeStream(e.stream));
    step(&e);
    await(&e);
    one = op(e.pool, e.theirs, 2 * MEGABYTE);
    OK(HcclBatchGet(e.comm, 1, &one, 1, e.stream));
    OK(aclrtSynchronizeStream(e.stream));
    CHECK(byte_at(e.pool) == 2 && byte_at(e.pool + 2 * MEGABYTE - 1) == 2 && byte_at(e.pool + 2 * MEGABYTE) == 1);
    CHECK(stat_of("bytes_put") == 1 << 20 && stat_of("bytes_got") == 2 << 20 && stat_of("batches") == 2);
    step(&e);
    tear_down(&e);
    join(&e);
}

void sizes(void)
{
    static const size_t list[] = {1, 63, 64, 65, 4095, 4096, 4097, 2 << 20};
    struct end e = pair(4 * MEGABYTE, until_told);
    unsigned char *want = malloc(2 * MEGABYTE), *got = malloc(2 * MEGABYTE);
    for (size_t i = 0; i < 2 * MEGABYTE; i++)
        want[i] = (unsigned char)(i * 7 + i / 4096);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        upload(e.pool, want, list[i]);
        op_t there = op(e.pool, e.theirs + 100, list[i]), back = op(e.pool + 2 * MEGABYTE, e.theirs + 100, list[i]);
        OK(HcclBatchPut(e.comm, 1, &there, 1, e.stream));
        OK(HcclBatchGet(e.comm, 1, &back, 1, e.stream));
        OK(aclrtSynchronizeStream(e.stream));
        download(got, e.pool + 2 * MEGABYTE, list[i]);
        CHECK(memcmp(want, got, list[i]) == 0);
    }
    op_t wide = {e.pool, e.theirs, 100, 6}; /* 64-bit elements */
    OK(HcclBatchPut(e.comm, 1, &wide, 1, e.stream));
    OK(aclrtSynchronizeStream(e.stream));
    free(want);
    free(got);
    step(&e);
    tear_down(&e);
    join(&e);
}

void descriptor_limits(void)
{
    static op_t ops[257];
    struct end e = pair(MEGABYTE * 2, until_told);
    for (int i = 0; i < 257; i++)
        ops[i] = op(e.pool + 64 * i, e.theirs + 64 * i, 64);
    fill(e.pool, 3, MEGABYTE);
    OK(HcclBatchPut(e.comm, 1, ops, 256, e.stream));
    CODE(1, HcclBatchPut(e.comm, 1, ops, 257, e.stream));
    OK(HcclBatchPut(e.comm, 1, ops, 0, e.stream));
    CODE(1, HcclBatchPut(e.comm, 0, ops, 1, e.stream)); /* itself */
    CODE(1, HcclBatchPut(e.comm, 2, ops, 1, e.stream));
    CODE(2, HcclBatchPut(e.comm, 1, NULL, 1, e.stream));
    CODE(2, HcclBatchPut(e.comm, 1, ops, 1, NULL));
    CODE(2, HcclBatchPut(NULL, 1, ops, 1, e.stream));
    OK(aclrtSynchronizeStream(e.stream));
    faults("limit:desc=64");
    CODE(1, HcclBatchGet(e.comm, 1, ops, 65, e.stream));
    expect_none();
    step(&e);
    tear_down(&e);
    join(&e);
}

static void four_landed(struct end *end)
{
    await(end);
    CHECK(byte_at(end->pool) == 5 && byte_at(end->pool + 3 * 4096) == 5); /* settled: the stream was synchronised */
    CHECK(byte_at(end->pool + 4 * 4096) == 0 && byte_at(end->pool + 5 * 4096) == 0);
    step(end);
    until_told(end);
}

void faulty_fifth(void)
{
    op_t ops[6];
    struct end e = pair(2 * MEGABYTE, four_landed);
    fill(e.pool, 5, MEGABYTE);
    for (int i = 0; i < 6; i++)
        ops[i] = op(e.pool + 4096 * i, e.theirs + 4096 * i, 4096);
    ops[4].count = 0;
    CODE(1, HcclBatchPut(e.comm, 1, ops, 6, e.stream));
    ops[0].dataType = 13;
    CODE(1, HcclBatchPut(e.comm, 1, ops, 1, e.stream));
    ops[0] = op(NULL, e.theirs, 64);
    CODE(2, HcclBatchPut(e.comm, 1, ops, 1, e.stream));
    ops[0] = op(e.pool + e.size - 10, e.theirs, 11); /* past what is bound here */
    CODE(4, HcclBatchPut(e.comm, 1, ops, 1, e.stream));
    ops[0] = op(e.pool, e.theirs + e.size - 10, 11); /* past what the peer gave */
    CODE(4, HcclBatchPut(e.comm, 1, ops, 1, e.stream));
    ops[0] = op(device_memory(64), e.theirs, 64); /* memory that is not registered */
    CODE(4, HcclBatchPut(e.comm, 1, ops, 1, e.stream));
    OK(aclrtFree(ops[0].localAddr));
    OK(aclrtSynchronizeStream(e.stream));
    step(&e);
    await(&e);
    step(&e);
    tear_down(&e);
    join(&e);
}

void two_streams(void)
{
    void *other;
    struct end e = pair(2 * MEGABYTE, until_told);
    op_t a = op(e.pool, e.theirs, 64), b = op(e.pool + 64, e.theirs + 64, 64);
    OK(aclrtCreateStream(&other));
    OK(HcclBatchPut(e.comm, 1, &a, 1, e.stream));
    OK(aclrtSynchronizeStream(e.stream));
    OK(HcclBatchPut(e.comm, 1, &b, 1, other)); /* one after the other is not at once */
    OK(aclrtSynchronizeStream(other));
    expect_none();
    faults("done:hang=1");
    OK(HcclBatchPut(e.comm, 1, &a, 1, e.stream));
    OK(HcclBatchPut(e.comm, 1, &b, 1, other));
    expect_violation("two streams");
    OK(HcclCommUnbindMem(e.comm, e.handle));
    CODE(20, HcclCommDestroy(e.comm)); /* busy */
    while (stat_of("injected[done:hang=1]") == 0)
        usleep(200);
    release();
    OK(aclrtSynchronizeStream(e.stream));
    OK(aclrtSynchronizeStream(other));
    OK(aclrtDestroyStream(other));
    OK(HcclCommBindMem(e.comm, e.handle));
    step(&e);
    tear_down(&e);
    join(&e);
}

void overlapping(void)
{
    struct end e = pair(2 * MEGABYTE, until_told);
    op_t a = op(e.pool, e.theirs, 4096), b = op(e.pool + 8192, e.theirs + 4095, 100);
    op_t own[2] = {op(e.pool, e.theirs, 64), op(e.pool + 64, e.theirs + 63, 64)};
    faults("done:hang=1");
    OK(HcclBatchPut(e.comm, 1, &a, 1, e.stream));
    OK(HcclBatchPut(e.comm, 1, &b, 1, e.stream));
    expect_violation("writes where another");
    while (stat_of("injected[done:hang=1]") == 0)
        usleep(200);
    release();
    OK(aclrtSynchronizeStream(e.stream));
    OK(HcclBatchPut(e.comm, 1, own, 2, e.stream)); /* within one batch */
    expect_violation("writes where another");
    OK(aclrtSynchronizeStream(e.stream));
    b = op(e.pool + 8192, e.theirs + 4096, 100);
    OK(HcclBatchPut(e.comm, 1, &a, 1, e.stream));
    OK(HcclBatchPut(e.comm, 1, &b, 1, e.stream));
    OK(aclrtSynchronizeStream(e.stream));
    expect_none();
    step(&e);
    tear_down(&e);
    join(&e);
}

static void sees_torn(struct end *end)
{
    await(end);
    CHECK(byte_at(end->pool) == 1 && byte_at(end->pool + MEGABYTE - 1) == 1);
    CHECK(byte_at(end->pool + MEGABYTE) == 0 && byte_at(end->pool + 2 * MEGABYTE - 1) == 0);
    step(end);
    await(end);
    CHECK(byte_at(end->pool + 2 * MEGABYTE - 1) == 1);
    step(end);
    until_told(end);
}

/* Before a batch is complete the target may see any mixture of old and new: here a rule stops it half-way. */
void torn(void)
{
    struct end e = pair(2 * MEGABYTE, sees_torn);
    fill(e.pool, 1, e.size);
    faults("done:partial=1,bytes=1048576,code=507057");
    op_t all = op(e.pool, e.theirs, e.size);
    OK(HcclBatchPut(e.comm, 1, &all, 1, e.stream));
    CODE(507057, aclrtSynchronizeStream(e.stream));
    step(&e);
    await(&e);
    OK(HcclBatchPut(e.comm, 1, &all, 1, e.stream));
    CODE(507057, aclrtSynchronizeStream(e.stream)); /* the failure stays, though this one came through */
    step(&e);
    await(&e);
    step(&e);
    tear_down(&e);
    join(&e);
}

void reordered(void)
{
    struct end e = pair(2 * MEGABYTE, until_told);
    fill(e.pool, 6, MEGABYTE);
    faults("pieces:reorder=1;done:partial=1,bytes=16384;seed:3");
    op_t all = op(e.pool, e.theirs, MEGABYTE);
    OK(HcclBatchPut(e.comm, 1, &all, 1, e.stream));
    CODE(507057, aclrtSynchronizeStream(e.stream));
    faults("pieces:reorder=1");
    void *fresh;
    OK(aclrtCreateStream(&fresh));
    all = op(e.pool + MEGABYTE, e.theirs, MEGABYTE);
    OK(HcclBatchGet(e.comm, 1, &all, 1, fresh));
    OK(aclrtSynchronizeStream(fresh));
    unsigned char *got = malloc(MEGABYTE);
    download(got, e.pool + MEGABYTE, MEGABYTE);
    int landed = 0;
    for (size_t i = 0; i < 256; i++)
        landed += got[4096 * i] == 6;
    CHECK(landed == 4 && !(got[0] == 6 && got[4096] == 6 && got[8192] == 6 && got[12288] == 6)); /* and not the first four */
    free(got);
    OK(aclrtDestroyStream(fresh));
    step(&e);
    tear_down(&e);
    join(&e);
}
