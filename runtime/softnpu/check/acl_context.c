/* Life cycle, devices, contexts: which thread may call what. */
#include "acl.h"

void life_cycle(void)
{
    uint64_t left = 9;
    void *p;
    int32_t major, minor, patch;
    char version[128];
    CODE(100001, aclrtSetDevice(0));
    CODE(100001, aclrtMalloc(&p, 1, 0));
    OK(aclInit(NULL));
    CODE(100002, aclInit(NULL));
    OK(aclFinalizeReference(&left));
    CHECK(left == 1);
    OK(aclrtGetVersion(&major, &minor, &patch));
    CHECK(major == 1 && minor == 16 && patch == 0);
    OK(aclsysGetVersionStr("runtime", version));
    CODE(100000, aclsysGetVersionStr("nothing", version));
    CHECK(strcmp(aclrtGetSocName(), "Ascend910B3") == 0);
    OK(aclFinalize());
    CODE(100037, aclFinalize());
    CODE(100037, aclFinalizeReference(&left));
    set("strict_init=0");
    OK(aclrtSetDevice(0));
    OK(aclrtResetDevice(0));
    expect_none();
}

static void use_default_device(void *unused)
{
    int32_t device = -1;
    (void)unused;
    OK(aclrtGetDevice(&device));
    CHECK(device == 1);
}

void init_file(void)
{
    char path[] = "/tmp/cannemu-check-XXXXXX";
    int file = mkstemp(path);
    const char *json = "{\"defaultDevice\": {\"default_device\": \"1\"}}";
    CHECK(file >= 0 && write(file, json, strlen(json)) == (ssize_t)strlen(json));
    close(file);
    CODE(100003, aclInit("/nowhere/acl.json"));
    OK(aclInit(path));
    unlink(path);
    in_thread(use_default_device, NULL);
}

void devices(void)
{
    uint32_t count;
    int32_t id, can;
    int mode, status;
    int64_t value;
    setenv("ASCEND_RT_VISIBLE_DEVICES", "1,0", 1);
    start();
    OK(aclrtGetDeviceCount(&count));
    CHECK(count == 2);
    CODE(107001, aclrtSetDevice(2));
    CODE(107001, aclrtSetDevice(-1));
    OK(aclrtGetPhyDevIdByLogicDevId(0, &id));
    CHECK(id == 1);
    OK(aclrtGetLogicDevIdByPhyDevId(1, &id));
    CHECK(id == 0);
    OK(aclrtGetLogicDevIdByUserDevId(1, &id));
    CHECK(id == 0);
    OK(aclrtGetUserDevIdByLogicDevId(0, &id));
    CHECK(id == 1);
    CODE(107001, aclrtGetPhyDevIdByLogicDevId(7, &id));
    OK(aclrtGetRunMode(&mode));
    CHECK(mode == 1);
    OK(aclrtQueryDeviceStatus(0, &status));
    CHECK(status == 0);
    OK(aclrtGetDeviceInfo(0, 301, &value));
    CHECK(value == 1 << 30);
    OK(aclrtGetDeviceInfo(0, 403, &value));
    CODE(107000, aclrtGetDeviceInfo(0, 99999, &value));
    OK(aclrtDeviceCanAccessPeer(&can, 0, 1));
    CHECK(can == 1);
    OK(aclrtDeviceEnablePeerAccess(1, 0));
    OK(aclrtSynchronizeDevice());
    OK(aclrtSynchronizeDeviceWithTimeout(1000));
    CODE(107000, aclrtSynchronizeDeviceWithTimeout(0));
    CODE(107000, aclrtSynchronizeDeviceWithTimeout(-2));
}

struct things { void *stream, *event, *memory, *host, *context; };

/* Every row of the table of what needs a context, on a thread that has none. */
static void no_context(void *argument)
{
    struct things *t = argument;
    void *p, *list[1] = {t->memory};
    size_t n[2], one[1] = {8}, zero[1] = {0};
    int status;
    int32_t id;
    uint32_t count;
    float ms;
    batch_attribute_t attribute = {0};
    CODE(107002, aclrtGetDevice(&id));
    CODE(107002, aclrtGetCurrentContext(&p));
    CODE(107002, aclrtCtxGetCurrentDefaultStream(&p));
    CODE(107002, aclrtSynchronizeDevice());
    CODE(107002, aclrtMalloc(&p, 64, 0));
    CODE(107002, aclrtMallocWithCfg(&p, 64, 0, NULL));
    CODE(107002, aclrtMallocHost(&p, 64));
    CODE(107002, aclrtMemcpy(t->memory, 8, t->host, 8, H2D));
    CODE(107002, aclrtMemcpyAsync(t->memory, 8, t->host, 8, H2D, t->stream));
    CODE(107002, aclrtMemset(t->memory, 8, 0, 8));
    CODE(107002, aclrtMemsetAsync(t->memory, 8, 0, 8, t->stream));
    CODE(107002, aclrtMemcpyBatch(list, one, list, one, 1, &attribute, zero, 1, n));
    CODE(107002, aclrtMemcpyBatchAsync(list, one, list, one, 1, &attribute, zero, 1, n, t->stream));
    CODE(107002, aclrtCreateStream(&p));
    CODE(107002, aclrtCreateStreamWithConfig(&p, 0, 3));
    CODE(107002, aclrtDestroyStream(t->stream));
    CODE(107002, aclrtDestroyStreamForce(t->stream));
    CODE(107002, aclrtSynchronizeStream(t->stream));
    CODE(107002, aclrtSynchronizeStreamWithTimeout(t->stream, 1));
    CODE(107002, aclrtStreamQuery(t->stream, &status));
    CODE(107002, aclrtStreamAbort(t->stream));
    CODE(107002, aclrtSetStreamFailureMode(t->stream, 1));
    CODE(107002, aclrtStreamGetId(t->stream, &id));
    CODE(107002, aclrtGetStreamAvailableNum(&count));
    CODE(107002, aclrtCreateEvent(&p));
    CODE(107002, aclrtCreateEventWithFlag(&p, 1));
    CODE(107002, aclrtCreateEventExWithFlag(&p, 1));
    CODE(107002, aclrtRecordEvent(t->event, t->stream));
    CODE(107002, aclrtResetEvent(t->event, t->stream));
    CODE(107002, aclrtStreamWaitEvent(t->stream, t->event));
    CODE(107002, aclrtDestroyEvent(t->event));
    CODE(107002, aclrtEventElapsedTime(&ms, t->event, t->event));
    CODE(107002, aclrtGetMemInfo(1, &n[0], &n[1]));
    CODE(107002, aclrtHostRegister(t->host, 4096, 0, &p));
    CODE(107002, aclrtHostRegisterV2(t->host, 4096, 2));
    CODE(107002, aclrtHostUnregister(t->host));
    /* The other column. */
    OK(aclrtQueryEventStatus(t->event, &status));
    OK(aclrtQueryEventWaitStatus(t->event, &status));
    OK(aclrtSynchronizeEvent(t->event));
    OK(aclrtGetDeviceCount(&count));
    OK(aclrtFree(t->memory));
    OK(aclrtFreeHost(t->host));
    OK(aclrtSetCurrentContext(t->context));
    OK(aclrtGetDevice(&id));
    CHECK(id == 0);
}

void thread_without_context(void)
{
    struct things t;
    start();
    OK(aclrtGetCurrentContext(&t.context));
    OK(aclrtCreateStream(&t.stream));
    OK(aclrtCreateEvent(&t.event));
    t.memory = device_memory(64);
    t.host = host_memory(8192);
    in_thread(no_context, &t);
    expect_none();
}

static void other_thread_message(void *unused)
{
    (void)unused;
    CHECK(aclGetRecentErrMsg() == NULL);
}

void messages(void)
{
    void *p;
    start();
    CODE(100000, aclrtMalloc(&p, 0, 0));
    in_thread(other_thread_message, NULL);
    const char *text = aclGetRecentErrMsg();
    CHECK(text != NULL && strstr(text, "aclrtMalloc") != NULL);
    CHECK(aclGetRecentErrMsg() == NULL);
    CODE(100000, aclrtMalloc(NULL, 8, 0));
    text = aclGetRecentErrMsg();
    CHECK(strstr(text, "aclrtMalloc") != NULL);
    CODE(107001, aclrtSetDevice(99));
    CHECK(strstr(text, "aclrtMalloc") == NULL); /* the storage was reused, on purpose */
    CHECK(aclrtPeekAtLastError(0) == 107001);
    CHECK(aclrtGetLastError(0) == 107001);
    CHECK(aclrtGetLastError(0) == 0);
}

static void uses_dead_context(void *context)
{
    void *p;
    CODE(107017, aclrtSetCurrentContext(context));
    CODE(107002, aclrtMalloc(&p, 8, 0));
}

struct meeting { pthread_barrier_t barrier; };

static void keeps_context(void *argument)
{
    struct meeting *m = argument;
    void *p;
    OK(aclrtSetDevice(0));
    pthread_barrier_wait(&m->barrier);
    pthread_barrier_wait(&m->barrier);
    CODE(107017, aclrtMalloc(&p, 8, 0));
}

void contexts(void)
{
    void *primary, *explicit, *now, *stream, *memory, *event;
    int32_t device;
    int status;
    struct meeting m;
    pthread_t thread;
    start();
    OK(aclrtGetCurrentContext(&primary));
    OK(aclrtCreateContext(&explicit, 1));
    OK(aclrtGetDevice(&device));
    CHECK(device == 1);
    OK(aclrtSetDevice(0)); /* replaces the explicit one */
    OK(aclrtGetCurrentContext(&now));
    CHECK(now == primary);
    CODE(107000, aclrtDestroyContext(primary));
    CODE(100000, aclrtSetCurrentContext(NULL));
    OK(aclrtDestroyContext(explicit));
    CODE(107017, aclrtDestroyContext(explicit));
    in_thread(uses_dead_context, explicit);

    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateEvent(&event));
    memory = device_memory(4096);
    OK(aclrtResetDevice(0)); /* one of two references */
    OK(aclrtSynchronizeStream(stream));
    pthread_barrier_init(&m.barrier, NULL, 2);
    CHECK(pthread_create(&thread, NULL, (void *(*)(void *))(void (*)(void))keeps_context, &m) == 0);
    pthread_barrier_wait(&m.barrier);
    OK(aclrtResetDeviceForce(0));
    pthread_barrier_wait(&m.barrier);
    CHECK(pthread_join(thread, NULL) == 0);
    CODE(107002, aclrtSynchronizeStream(stream));
    CODE(107002, aclrtResetDevice(0));
    OK(aclrtSetDevice(0));
    CODE(107017, aclrtSynchronizeStream(stream));
    CODE(107017, aclrtQueryEventStatus(event, &status));
    CODE(107017, aclrtSetCurrentContext(primary));
    CODE(107000, aclrtFree(memory)); /* went with its context */
    expect_violation("free of");
}
