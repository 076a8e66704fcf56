/* The older sequence: register, exchange, enable; and root info in place of a rank table. */
#include "hccl.h"

static unsigned char *pool;
static void *stream;

static void exchange(struct end *end, void *comm)
{
    uint32_t peer = end->rank == 0 ? 1 : 0, count = 0;
    mem_desc_t mine, again, theirs[2];
    mem_descs_t local = {&mine, 1}, remote = {theirs, 2}, none = {theirs, 0};
    mem_t remote_memory;
    OK(HcclRegisterMem(comm, peer, 0, pool, MEGABYTE, &mine));
    CODE(20, HcclRegisterMem(comm, peer, 0, pool, MEGABYTE, &again)); /* counted; no failure */
    CHECK(mine.localRank == (uint32_t)end->rank && mine.remoteRank == peer);
    CODE(1, HcclRegisterMem(comm, (uint32_t)end->rank, 0, pool, MEGABYTE, &again));
    CODE(2, HcclExchangeMemDesc(comm, peer, NULL, 60, &remote, &count));
    OK(HcclExchangeMemDesc(comm, peer, &local, 60, &remote, &count));
    CHECK(count == 1 && theirs[0].localRank == peer);
    OK(HcclEnableMemAccess(comm, &theirs[0], &remote_memory));
    CHECK(remote_memory.type == 0 && remote_memory.size == MEGABYTE && remote_memory.addr != NULL);
    unsigned char got[2], value = (unsigned char)(10 + end->rank);
    /* Each writes the half of the other that bears its own rank. */
    OK(aclrtMemset(pool + MEGABYTE, MEGABYTE, 0, MEGABYTE));
    OK(aclrtMemset(pool, MEGABYTE, value, MEGABYTE));
    step(end);
    await(end);
    size_t half = MEGABYTE / 2;
    op_t one = op(pool + half * (size_t)end->rank, (unsigned char *)remote_memory.addr + half * (size_t)end->rank, half);
    OK(HcclBatchPut(comm, peer, &one, 1, stream));
    OK(aclrtSynchronizeStream(stream));
    step(end);
    await(end);
    download(got, pool + half * peer, 2);
    CHECK(got[0] == 10 + peer && got[1] == 10 + peer);
    OK(HcclDisableMemAccess(comm, &theirs[0]));
    CODE(1, HcclDisableMemAccess(comm, &theirs[0]));
    CODE(4, HcclBatchPut(comm, peer, &one, 1, stream));
    expect_none();
    /* A list that is longer than the room for it is told, not written. */
    OK(HcclExchangeMemDesc(comm, peer, &local, 60, &none, &count));
    expect_violation("into an array of 0");
    CODE(20, HcclDeregisterMem(comm, &mine));
    OK(HcclDeregisterMem(comm, &mine));
    CODE(1, HcclDeregisterMem(comm, &mine));
    step(end);
    await(end);
    OK(HcclCommDestroy(comm));
    expect_none();
}

static void begin(void)
{
    start();
    OK(aclrtCreateStream(&stream));
    pool = device_memory(2 * MEGABYTE);
}

static char table_path[64];

static void by_table(struct end *end)
{
    void *comm;
    config_t c = config_for("older");
    begin();
    CODE(10, HcclCommInitClusterInfo("/nowhere/table.json", 0, &comm));
    if (end->rank == 0)
        OK(HcclCommInitClusterInfo(table_path, 0, &comm));
    OK(end->rank == 0 ? HcclCommDestroy(comm) : 0);
    OK(HcclCommInitClusterInfoConfig(table_path, (uint32_t)end->rank, &c, &comm));
    exchange(end, comm);
}

void older_sequence(void)
{
    strcpy(table_path, "/tmp/cannemu-check-XXXXXX");
    int file = mkstemp(table_path);
    CHECK(file >= 0 && write(file, table, strlen(table)) == (ssize_t)strlen(table));
    close(file);
    struct end e = split(by_table);
    by_table(&e);
    unlink(table_path);
    join(&e);
}

static void by_root(struct end *end)
{
    void *comm;
    root_t root;
    config_t c = config_for("named");
    begin();
    if (end->rank == 0) {
        OK(HcclGetRootInfo(&root));
        tell(end, &root, sizeof root);
    } else
        hear(end, &root, sizeof root);
    CODE(1, HcclCommInitRootInfo(2, &root, 2, &comm));
    OK(HcclCommInitRootInfo(2, &root, (uint32_t)end->rank, &comm));
    set(end->rank == 0 ? "server=left" : "server=right");
    exchange(end, comm);
    OK(HcclCommInitRootInfoConfig(2, &root, (uint32_t)end->rank, &c, &comm));
    exchange(end, comm);
    memset(&root, 0, sizeof root);
    CODE(1, HcclCommInitRootInfo(2, &root, 0, &comm));
    CODE(2, HcclGetRootInfo(NULL));
}

void root_info(void)
{
    struct end e = split(by_root);
    by_root(&e);
    join(&e);
}
