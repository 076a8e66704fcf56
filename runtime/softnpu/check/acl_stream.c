/* Streams: order, timeouts, failures, abort, bounds. */
#include "acl.h"

#define MEGABYTE (1 << 20)

void stream_order(void)
{
    void *stream;
    int32_t id;
    uint32_t before, after;
    int status;
    start();
    OK(aclrtGetStreamAvailableNum(&before));
    OK(aclrtCreateStreamWithConfig(&stream, 0, 3));
    OK(aclrtGetStreamAvailableNum(&after));
    CHECK(after + 1 == before);
    OK(aclrtStreamGetId(stream, &id));
    unsigned char *device = device_memory(MEGABYTE), *host = host_memory(MEGABYTE), got[16];
    /* Each fill overwrites the one before: the last must win, each time. */
    for (int i = 0; i < 200; i++)
        OK(aclrtMemsetAsync(device, MEGABYTE, i, 64, stream));
    OK(aclrtMemcpyAsync(host, MEGABYTE, device, 64, D2H, stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK(host[0] == 199 && host[63] == 199);
    OK(aclrtStreamQuery(stream, &status));
    CHECK(status == 0);
    OK(aclrtMemsetAsync(device, MEGABYTE, 7, 16, NULL)); /* the default stream */
    OK(aclrtSynchronizeStream(NULL));
    download(got, device, 16);
    CHECK(got[0] == 7);
    OK(aclrtDestroyStream(stream));
    CODE(107017, aclrtDestroyStream(stream));
    CODE(107017, aclrtSynchronizeStream(stream));
    CODE(107017, aclrtStreamQuery(stream, &status));
    CODE(107017, aclrtMemsetAsync(device, 8, 0, 8, stream));
    for (uintptr_t nonsense = 1; nonsense != 0; nonsense <<= 1)
        CODE(107017, aclrtSynchronizeStream((void *)nonsense));
    expect_none();
}

/* The source is read when the worker reaches the task, not during the call. */
void asynchronous(void)
{
    void *stream, *other, *event;
    start();
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateStream(&other));
    OK(aclrtCreateEvent(&event));
    unsigned char *device = device_memory(64), *gate = device_memory(64), *host = host_memory(64), got[64];
    stuck(other, gate, host);
    OK(aclrtRecordEvent(event, other)); /* not before the abort below, so nothing has begun */
    memset(host, 1, 64);
    OK(aclrtStreamWaitEvent(stream, event));
    OK(aclrtMemcpyAsync(device, 64, host, 64, H2D, stream));
    memset(host, 2, 64);
    faults("");
    OK(aclrtStreamAbort(other));
    OK(aclrtStreamAbort(stream)); /* the event that it waits for will never happen */
    OK(aclrtMemcpyAsync(device, 64, host, 64, H2D, stream));
    OK(aclrtSynchronizeStream(stream));
    download(got, device, 64);
    CHECK(got[0] == 2);
    /* Pageable memory, in contrast, is not used any more when the call returns. */
    unsigned char pageable[64] = {5};
    OK(aclrtMemcpyAsync(device, 64, pageable, 64, H2D, stream));
    pageable[0] = 6;
    OK(aclrtSynchronizeStream(stream));
    download(got, device, 64);
    CHECK(got[0] == 5);
    expect_none();
}

void stream_timeouts(void)
{
    void *stream;
    int status;
    start();
    OK(aclrtCreateStream(&stream));
    unsigned char *device = device_memory(64), *host = host_memory(64), got[64];
    memset(host, 3, 64);
    CODE(107000, aclrtSynchronizeStreamWithTimeout(stream, 0));
    CODE(107000, aclrtSynchronizeStreamWithTimeout(stream, -2));
    OK(aclrtSynchronizeStreamWithTimeout(stream, -1));
    stuck(stream, device, host);
    CODE(507046, aclrtSynchronizeStreamWithTimeout(stream, 1));
    OK(aclrtStreamQuery(stream, &status));
    CHECK(status == 1);
    CODE(507046, aclrtSynchronizeDeviceWithTimeout(1));
    release();
    OK(aclrtSynchronizeStream(stream)); /* the work went on */
    download(got, device, 64);
    CHECK(got[0] == 3);
    expect_none();
}

void failed_task(void)
{
    void *stream, *other;
    int status;
    start();
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateStream(&other));
    unsigned char *device = device_memory(64), *host = host_memory(64), got[64];
    memset(host, 4, 64);
    faults("done:fail=1,code=507057,of=copy");
    OK(aclrtMemcpyAsync(device, 64, host, 64, H2D, stream));
    OK(aclrtMemcpyAsync(device, 64, host, 64, H2D, stream));
    CODE(507057, aclrtSynchronizeStream(stream));
    CODE(507057, aclrtSynchronizeStream(stream)); /* it stays */
    CODE(507057, aclrtStreamQuery(stream, &status));
    CODE(507057, aclrtSynchronizeDevice());
    download(got, device, 64);
    CHECK(got[63] == 4); /* CONTINUE_ON_FAILURE: the second came through */
    OK(aclrtSynchronizeStream(other));
    CHECK(stat_of("injected") == 1);
    OK(aclrtDestroyStream(stream));
    expect_none();
}

void stop_on_failure(void)
{
    void *primary, *context, *stream, *other, *outside;
    start();
    OK(aclrtGetCurrentContext(&primary));
    OK(aclrtCreateStream(&outside));
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateStream(&other));
    OK(aclrtSetStreamFailureMode(stream, 1));
    CODE(107000, aclrtSetStreamFailureMode(stream, 1));
    unsigned char *device = device_memory(64), *host = host_memory(64);
    faults("done:fail=1,code=507013,of=copy");
    OK(aclrtMemcpyAsync(device, 64, host, 64, H2D, stream));
    CODE(507013, aclrtSynchronizeStream(stream));
    CODE(507013, aclrtSynchronizeStream(other)); /* the whole context stops */
    CODE(507013, aclrtMemcpyAsync(device, 64, host, 64, H2D, other));
    OK(aclrtSetCurrentContext(primary)); /* and no other context */
    OK(aclrtMemcpyAsync(device, 64, host, 64, H2D, outside));
    OK(aclrtSynchronizeStream(outside));
    expect_none();
}

struct waiter { void *stream, *context; int code; };

static void *wait_for_stream(void *argument)
{
    struct waiter *w = argument;
    OK(aclrtSetCurrentContext(w->context));
    w->code = aclrtSynchronizeStream(w->stream);
    return NULL;
}

void abort_stream(void)
{
    struct waiter w = {0};
    pthread_t thread;
    void *event;
    int status;
    start();
    OK(aclrtGetCurrentContext(&w.context));
    OK(aclrtCreateStream(&w.stream));
    OK(aclrtCreateEvent(&event));
    unsigned char *device = device_memory(4096), *host = host_memory(4096), got[64];
    OK(aclrtMemset(device, 4096, 1, 4096));
    memset(host, 9, 4096);
    stuck(w.stream, device + 64, host);
    OK(aclrtMemcpyAsync(device, 64, host, 64, H2D, w.stream)); /* never starts */
    OK(aclrtRecordEvent(event, w.stream));
    CHECK(pthread_create(&thread, NULL, wait_for_stream, &w) == 0);
    while (stat_of("calls.aclrtSynchronizeStream") == 0)
        usleep(200);
    OK(aclrtStreamAbort(w.stream));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(w.code == 107023);
    OK(aclrtStreamQuery(w.stream, &status));
    CHECK(status == 0);
    OK(aclrtQueryEventStatus(event, &status));
    CHECK(status == 0); /* it never happened */
    CODE(107023, aclrtSynchronizeEvent(event));
    download(got, device, 64);
    CHECK(got[0] == 1 && got[63] == 1);
    expect_none();
}

void destroy_stream(void)
{
    void *stream, *forced, *fallback;
    start();
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateStream(&forced));
    unsigned char *device = device_memory(1 << 20), *host = host_memory(1 << 20), got[64];
    memset(host, 8, 1 << 20);
    for (int i = 0; i < 20; i++)
        OK(aclrtMemcpyAsync(device, 1 << 20, host, 1 << 20, H2D, stream));
    memset(host, 9, 64); /* may or may not be seen, but the last copy must see it */
    OK(aclrtMemcpyAsync(device, 64, host, 64, H2D, stream));
    OK(aclrtDestroyStream(stream)); /* waits */
    download(got, device, 64);
    CHECK(got[0] == 9);
    stuck(forced, device, host);
    OK(aclrtDestroyStreamForce(forced)); /* does not */
    CODE(107017, aclrtSynchronizeStream(forced));
    OK(aclrtCtxGetCurrentDefaultStream(&fallback));
    CODE(107000, aclrtDestroyStream(fallback));
    CODE(100000, aclrtDestroyStream(NULL));
    expect_none();
}

void foreign_context(void)
{
    void *primary, *context, *stream, *event, *own;
    int status;
    start();
    OK(aclrtGetCurrentContext(&primary));
    OK(aclrtCreateContext(&context, 0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateEvent(&event));
    unsigned char *device = device_memory(64), *host = host_memory(64);
    OK(aclrtSetCurrentContext(primary));
    OK(aclrtCreateStream(&own));
    CODE(107003, aclrtMemcpyAsync(device, 64, host, 64, H2D, stream));
    CODE(107003, aclrtStreamQuery(stream, &status));
    CODE(107003, aclrtStreamAbort(stream));
    CODE(107003, aclrtDestroyStream(stream));
    CODE(107003, aclrtRecordEvent(event, own));
    CODE(107003, aclrtStreamWaitEvent(own, event));
    CODE(107003, aclrtDestroyEvent(event));
    OK(aclrtSynchronizeStream(stream)); /* the exception */
    OK(aclrtDestroyContext(context));
    CODE(107017, aclrtSynchronizeStream(stream));
}

static void *release_later(void *argument)
{
    struct waiter *w = argument;
    OK(aclrtSetCurrentContext(w->context));
    while (stat_of("calls.aclrtMemsetAsync") < 8)
        usleep(200);
    OK(aclrtStreamAbort(w->stream));
    return NULL;
}

void bounds(void)
{
    struct waiter w = {0};
    void *stream, *event;
    pthread_t thread;
    start();
    OK(aclrtGetCurrentContext(&w.context));
    OK(aclrtCreateStream(&w.stream));
    unsigned char *device = device_memory(64), *host = host_memory(64);
    set("queue=8");
    set("queue_full_fails=1");
    stuck(w.stream, device, host);
    for (int i = 0; i < 7; i++)
        OK(aclrtMemsetAsync(device, 64, i, 64, w.stream));
    CODE(507002, aclrtMemsetAsync(device, 64, 1, 64, w.stream));
    OK(aclrtStreamAbort(w.stream));
    set("queue_full_fails=0");
    cannemu_control("forget", NULL, 0);
    stuck(w.stream, device, host);
    for (int i = 0; i < 7; i++)
        OK(aclrtMemsetAsync(device, 64, i, 64, w.stream));
    CHECK(pthread_create(&thread, NULL, release_later, &w) == 0);
    faults("");
    OK(aclrtMemsetAsync(device, 64, 1, 64, w.stream)); /* blocks until the other thread made room */
    CHECK(pthread_join(thread, NULL) == 0);
    OK(aclrtSynchronizeStream(w.stream));
    faults("limit:streams=2,events=1"); /* the default stream and ours */
    CODE(207008, aclrtCreateStream(&stream));
    OK(aclrtCreateEvent(&event));
    CODE(207007, aclrtCreateEvent(&event));
    expect_none();
}
