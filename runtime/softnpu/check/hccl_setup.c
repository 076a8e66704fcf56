/* Registering, binding, making and preparing communicators, and their end. */
#include <stdatomic.h>
#include <sys/mman.h>

#include "hccl.h"

void registration_rules(void)
{
    void *a, *b;
    start();
    unsigned char *pool = device_memory(4 * MEGABYTE), *host = host_memory(65536);
    mem_t m = {0, pool, MEGABYTE}, bad = m;
    OK(HcclRegisterGlobalMem(&m, &a));
    OK(HcclRegisterGlobalMem(&m, &b));
    CHECK(a == b); /* the same again, and no count */
    bad.addr = pool + 4096;
    CODE(1, HcclRegisterGlobalMem(&bad, &b)); /* overlaps */
    bad = (mem_t){1, pool, MEGABYTE};
    CODE(1, HcclRegisterGlobalMem(&bad, &b)); /* that is no host memory */
    bad = (mem_t){0, pool + 2 * MEGABYTE, 3 * MEGABYTE};
    CODE(1, HcclRegisterGlobalMem(&bad, &b));
    bad = (mem_t){0, &m, 64};
    CODE(1, HcclRegisterGlobalMem(&bad, &b));
    bad = (mem_t){5, pool, 64};
    CODE(1, HcclRegisterGlobalMem(&bad, &b));
    bad = (mem_t){0, pool, 0};
    CODE(1, HcclRegisterGlobalMem(&bad, &b));
    bad = (mem_t){0, NULL, 64};
    CODE(2, HcclRegisterGlobalMem(&bad, &b));
    CODE(2, HcclRegisterGlobalMem(NULL, &b));
    CODE(2, HcclRegisterGlobalMem(&m, NULL));
    b = registered(1, host, 65536);
    OK(HcclDeregisterGlobalMem(b));
    CODE(1, HcclDeregisterGlobalMem(b));
    CODE(2, HcclDeregisterGlobalMem(NULL));
    OK(aclrtSetDevice(1)); /* one registry for each device */
    CODE(1, HcclDeregisterGlobalMem(a));
    OK(aclrtSetDevice(0));
    OK(HcclDeregisterGlobalMem(a)); /* one ends it for all */
    CODE(1, HcclDeregisterGlobalMem(a));
    set("hccl_generation=8");
    for (int i = 0; i < 256; i++) {
        m = (mem_t){0, pool + 4096 * i, 4096};
        OK(HcclRegisterGlobalMem(&m, &b));
    }
    CODE(7, HcclRegisterGlobalMem(&m, &b)); /* the limit comes before the duplicate */
    expect_none();
}

static void *by_stray_thread; /* registered on a thread without a device */
static mem_t stray;

static void register_without_device(void *unused)
{
    (void)unused;
    OK(HcclRegisterGlobalMem(&stray, &by_stray_thread));
    CODE(15, HcclDeregisterGlobalMem(by_stray_thread));
    CHECK(strstr(aclGetRecentErrMsg(), "no current context") != NULL);
}

void bind_rules(void)
{
    start();
    unsigned char *pool = device_memory(4 * MEGABYTE);
    void *handle = registered(0, pool, MEGABYTE), *comm = communicator(table, 0, "bind");
    OK(HcclCommBindMem(comm, handle));
    CODE(1, HcclCommBindMem(comm, handle));
    CODE(1, HcclDeregisterGlobalMem(handle));
    CODE(1, HcclCommBindMem(comm, comm));
    CODE(2, HcclCommBindMem(comm, NULL));
    CODE(2, HcclCommBindMem(NULL, handle));
    CODE(1, HcclCommBindMem(handle, handle));
    stray = (mem_t){0, pool + 2 * MEGABYTE, MEGABYTE};
    in_thread(register_without_device, NULL);
    CODE(1, HcclCommBindMem(comm, by_stray_thread));
    OK(HcclCommUnbindMem(comm, handle));
    CODE(1, HcclCommUnbindMem(comm, handle));
    OK(HcclCommDestroy(comm));
    OK(HcclDeregisterGlobalMem(handle));
    expect_none();
}

void init_rules(void)
{
    void *comm, *other;
    start();
    config_t c = config_for("init");
    c.magic = 1;
    CODE(1, HcclCommInitClusterInfoMemConfig(table, 0, &c, &comm));
    c = config_for("");
    CODE(1, HcclCommInitClusterInfoMemConfig(table, 0, &c, &comm));
    c = config_for("init");
    memset(c.name, 'x', sizeof c.name); /* no end */
    CODE(1, HcclCommInitClusterInfoMemConfig(table, 0, &c, &comm));
    c = config_for("init");
    c.bufferSize = 0;
    CODE(1, HcclCommInitClusterInfoMemConfig(table, 0, &c, &comm));
    c = config_for("init");
    CODE(2, HcclCommInitClusterInfoMemConfig(NULL, 0, &c, &comm));
    CODE(2, HcclCommInitClusterInfoMemConfig(table, 0, NULL, &comm));
    CODE(2, HcclCommInitClusterInfoMemConfig(table, 0, &c, NULL));
    CODE(1, HcclCommInitClusterInfoMemConfig(table, 2, &c, &comm));
    expect_none();
    c.configSize = 31;
    CODE(1, HcclCommInitClusterInfoMemConfig(table, 0, &c, &comm));
    expect_violation("configSize 31");
    c.configSize = 299;
    OK(HcclCommInitClusterInfoMemConfig(table, 0, &c, &comm));
    expect_violation("version 5 promises");
    c = config_for("init");
    CODE(1, HcclCommInitClusterInfoMemConfig(table, 0, &c, &other)); /* the name is used */
    OK(aclrtSetDevice(1));
    OK(HcclCommInitClusterInfoMemConfig(table, 0, &c, &other)); /* not on this device */
    OK(HcclCommDestroy(other));
    OK(aclrtSetDevice(0));
    OK(HcclCommDestroy(comm));
    expect_none();
}

static atomic_int caught;

/* Makes communicators until two were made at once: chance, and how busy the machine is, say when that is. */
static void *makes_many(void *argument)
{
    char reply[60000];
    OK(aclrtSetDevice(0));
    for (int i = 0; i < 100000 && !caught; i++) {
        char name[32];
        snprintf(name, sizeof name, "parallel-%ld-%d", (long)(intptr_t)argument, i);
        OK(HcclCommDestroy(communicator(table, 0, name)));
        cannemu_control("violations", reply, sizeof reply);
        if (strstr(reply, "one lock for the process") != NULL)
            caught = 1;
    }
    return NULL;
}

void parallel_init(void)
{
    pthread_t threads[2];
    start();
    for (intptr_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, makes_many, (void *)i) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(caught);
}

static int with_table(const char *json)
{
    void *comm;
    config_t c = config_for("tables");
    int code = HcclCommInitClusterInfoMemConfig(json, 0, &c, &comm);
    if (code == 0)
        OK(HcclCommDestroy(comm));
    return code;
}

/* The good table with one text in place of another. */
static int with_changed(const char *json, const char *from, const char *to)
{
    char text[4000];
    const char *at = strstr(json, from);
    CHECK(at != NULL);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - json), json, to, at + strlen(from));
    return with_table(text);
}

void rank_tables(void)
{
    const char *pods = "{\"status\":\"completed\",\"version\":\"1.2\",\"server_list\":["
                       "{\"server_id\":\"a\",\"device\":[{\"device_id\":\"0\",\"super_device_id\":\"0\",\"device_ip\":\"1.1.1.1\",\"rank_id\":\"0\"}]},"
                       "{\"server_id\":\"b\",\"device\":[{\"device_id\":\"3\",\"super_device_id\":\"9\",\"device_ip\":\"1.1.1.2\",\"rank_id\":\"1\"}]}],"
                       "\"super_pod_list\":[{\"super_pod_id\":\"0\",\"server_list\":[{\"server_id\":\"a\"},{\"server_id\":\"b\"}]}]}";
    start();
    OK(with_table(table));
    OK(with_table(pods));
    CODE(1, with_table(""));
    CODE(1, with_table("{"));
    CODE(1, with_table("[]"));
    CODE(1, with_changed(table, "}]}]}", "}]}]}x"));
    CODE(1, with_changed(table, "\"completed\"", "\"initializing\""));
    CODE(1, with_changed(table, "\"1.0\"", "\"1.1\""));
    CODE(1, with_changed(table, "\"server_count\":\"2\"", "\"server_count\":\"3\""));
    CODE(1, with_changed(table, "\"server_count\":\"2\"", "\"server_count\":2")); /* all numbers are strings */
    CODE(1, with_changed(table, "\"server_count\":\"2\",", ""));
    CODE(1, with_changed(table, "\"rank_id\":\"1\"", "\"rank_id\":\"0\""));
    CODE(1, with_changed(table, "\"rank_id\":\"1\"", "\"rank_id\":\"2\"")); /* a gap */
    CODE(1, with_changed(table, "\"rank_id\":\"1\"", "\"rank_id\":\"x\""));
    CODE(1, with_changed(table, "\"device_id\":\"0\",", ""));
    CODE(1, with_changed(table, "10.0.0.1", "01234567890123456789012345678901234567890123456789012345678901234"));
    CODE(6, with_changed(table, "192.168.1.10", ""));
    CODE(6, with_changed(table, "\"device_ip\":\"192.168.1.10\",", ""));
    CODE(1, with_changed(table, "\"rank_id\":\"1\"", "\"rank_id\":\"1\",\"device_port\":\"70000\""));
    CODE(1, with_changed(pods, "\"super_device_id\":\"9\",", ""));
    CODE(1, with_changed(pods, "{\"server_id\":\"b\"}]}]", "{\"server_id\":\"c\"}]}]"));
    expect_none();
}

static void nothing(struct end *end)
{
    build(end, table, "rules", 2 * MEGABYTE);
    await(end);
    tear_down(end);
}

void prepare_rules(void)
{
    prepare_t mesh = {0}, other = {.topoType = 1};
    struct end e = split(nothing);
    start();
    OK(aclrtCreateStream(&e.stream));
    e.size = 2 * MEGABYTE;
    e.pool = device_memory(e.size);
    e.handle = registered(0, e.pool, e.size);
    e.comm = communicator(table, 0, "rules");
    OK(HcclCommBindMem(e.comm, e.handle));
    CODE(1, HcclCommPrepare(e.comm, &mesh, -2));
    CODE(1, HcclCommPrepare(e.comm, &other, 5));
    CODE(2, HcclCommPrepare(e.comm, NULL, 5));
    CODE(2, HcclCommPrepare(NULL, &mesh, 5));
    op_t one = op(e.pool, e.pool, 64);
    CODE(6, HcclBatchPut(e.comm, 1, &one, 1, e.stream)); /* before prepare */
    prepare(e.comm);
    OK(HcclCommPrepare(e.comm, &mesh, 60)); /* again: nothing is done */
    tell(&e, &e.pool, sizeof e.pool);
    hear(&e, &e.theirs, sizeof e.theirs);
    expect_none();
    step(&e);
    tear_down(&e);
    join(&e);
}

static void with_wrong_name(struct end *end)
{
    prepare_t mesh = {0};
    start();
    void *comm = communicator(table, 1, "one name");
    CODE(9, HcclCommPrepare(comm, &mesh, 1));
    OK(HcclCommDestroy(comm));
    step(end);
    build(end, table, "same", 2 * MEGABYTE);
    OK(aclrtResetDevice(0)); /* of two references, this check's own */
    await(end);
    tear_down(end);
}

void names_differ(void)
{
    prepare_t mesh = {0};
    struct end e = split(with_wrong_name);
    start();
    void *comm = communicator(table, 0, "another");
    CODE(9, HcclCommPrepare(comm, &mesh, 1));
    OK(HcclCommDestroy(comm));
    await(&e);
    build(&e, table, "same", 2 * MEGABYTE);
    step(&e);
    expect_none();
    OK(aclrtResetDevice(0)); /* of two references, this check's own */
    tear_down(&e);
    join(&e);
}

static void other_table(struct end *end)
{
    prepare_t mesh = {0};
    char text[4000];
    const char *at = strstr(table, "10.0.0.1");
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - table), table, "10.9.9.9", at + 8);
    start();
    CODE(1, HcclCommPrepare(communicator(text, 1, "tables"), &mesh, 60));
    expect_violation("different rank tables");
    await(end);
}

void tables_differ(void)
{
    prepare_t mesh = {0};
    struct end e = split(other_table);
    start();
    CODE(1, HcclCommPrepare(communicator(table, 0, "tables"), &mesh, 60));
    expect_violation("different rank tables");
    step(&e);
    join(&e);
}

void prepare_by_rule(void)
{
    prepare_t mesh = {0};
    start();
    faults("prepare:fail=1,code=12;prepare:delay=5");
    void *comm = communicator(table, 0, "rule");
    CODE(12, HcclCommPrepare(comm, &mesh, 60));
    CODE(9, HcclCommPrepare(comm, &mesh, 1)); /* nobody is there */
    CHECK(stat_of("injected") == 2);
    OK(HcclCommDestroy(comm));
}

void rank_is_not_known(void)
{
    int async;
    start();
    CODE(1, HcclGetCommAsyncError((void *)0x1234, &async));
    CODE(2, HcclGetCommAsyncError(NULL, &async));
    for (uintptr_t nonsense = 1; nonsense != 0; nonsense <<= 1)
        CODE(1, HcclCommBindMem((void *)nonsense, (void *)nonsense));
    CODE(5, HcclRemapRegistedMemory(NULL, NULL, 0, 0));
    CHECK(HcclGetCommConfigCapability() > 5);
    expect_none();
}

void destroy_rules(void)
{
    start();
    unsigned char *pool = device_memory(2 * MEGABYTE);
    void *handle = registered(0, pool, MEGABYTE), *comm = communicator(table, 0, "destroy");
    OK(HcclCommDestroy(NULL));
    OK(HcclCommBindMem(comm, handle));
    CODE(1, HcclCommDestroy(comm)); /* still bound */
    expect_none();
    OK(HcclCommUnbindMem(comm, handle));
    OK(HcclCommDestroy(comm));
    expect_violation("half-closed");
    CODE(1, HcclCommDestroy(comm));
    expect_violation("memory corruption");
    faults("destroy:busy=2");
    comm = communicator(table, 0, "destroy");
    CODE(20, HcclCommDestroy(comm));
    CODE(20, HcclCommDestroy(comm));
    OK(HcclCommDestroy(comm));
    expect_none();
}

void last_registration(void)
{
    start();
    unsigned char *pool = device_memory(2 * MEGABYTE);
    void *handle = registered(0, pool, MEGABYTE), *comm = communicator(table, 0, "last");
    OK(HcclDeregisterGlobalMem(handle));
    expect_violation("last registration");
    OK(HcclCommDestroy(comm));
}

void free_registered(void)
{
    start();
    unsigned char *pool = device_memory(2 * MEGABYTE);
    void *handle = registered(0, pool, MEGABYTE);
    OK(aclrtFree(pool));
    expect_violation("registered with HCCL");
    OK(HcclDeregisterGlobalMem(handle));
}

void error_names(void)
{
    CHECK(strcmp(HcclGetErrorString(4), "HCCL_E_INTERNAL") == 0);
    CHECK(strcmp(HcclGetErrorString(9), "HCCL_E_TIMEOUT") == 0);
    CHECK(strstr(HcclGetErrorString(4711), "unknown") != NULL);
    void *comm;
    config_t c = config_for("early");
    CODE(15, HcclCommInitClusterInfoMemConfig(table, 0, &c, &comm)); /* before aclInit */
    CHECK(strstr(aclGetRecentErrMsg(), "aclInit") != NULL);
}
