/* Events: both polarities, old style and Ex, order between streams. */
#include "acl.h"

void event_polarity(void)
{
    void *old, *ex, *stream;
    int status;
    start();
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateEvent(&old));
    OK(aclrtCreateEventExWithFlag(&ex, 1));
    OK(aclrtQueryEventStatus(old, &status));
    CHECK(status == 0); /* never recorded: an old one is not ready */
    OK(aclrtQueryEventStatus(ex, &status));
    CHECK(status == 1); /* and a newer one complete */
    OK(aclrtSynchronizeEvent(old));
    OK(aclrtSynchronizeEvent(ex));
    unsigned char *device = device_memory(64), *host = host_memory(64);
    stuck(stream, device, host);
    OK(aclrtRecordEvent(old, stream));
    OK(aclrtRecordEvent(ex, stream));
    OK(aclrtQueryEventStatus(old, &status));
    CHECK(status == 0);
    OK(aclrtQueryEventStatus(ex, &status));
    CHECK(status == 0);
    OK(aclrtQueryEventWaitStatus(ex, &status));
    CHECK(status == 1);
    CODE(507047, aclrtSynchronizeEventWithTimeout(old, 1));
    CODE(107000, aclrtSynchronizeEventWithTimeout(old, 0));
    CODE(107000, aclrtSynchronizeEventWithTimeout(old, -2));
    faults("");
    OK(aclrtStreamAbort(stream));
    OK(aclrtRecordEvent(ex, stream)); /* again, as it may */
    OK(aclrtSynchronizeEventWithTimeout(ex, -1));
    OK(aclrtQueryEventStatus(ex, &status));
    CHECK(status == 1);
    OK(aclrtQueryEventWaitStatus(ex, &status));
    CHECK(status == 0);
    OK(aclrtResetEvent(old, stream));
    OK(aclrtRecordEvent(old, stream));
    OK(aclrtSynchronizeEvent(old));
    expect_none();
    OK(aclrtRecordEvent(old, stream));
    OK(aclrtSynchronizeStream(stream));
    expect_violation("recorded again");
    OK(aclrtDestroyEvent(old));
    CODE(107017, aclrtDestroyEvent(old));
    CODE(107017, aclrtQueryEventStatus(old, &status));
    CODE(107017, aclrtSynchronizeEvent(old));
    CODE(107017, aclrtRecordEvent(old, stream));
    CODE(107017, aclrtRecordEvent(stream, stream)); /* a handle of another kind */
    CODE(100000, aclrtDestroyEvent(NULL));
}

void cross_stream_order(void)
{
    void *reads, *scatter, *event, *quiet;
    start();
    OK(aclrtCreateStream(&reads));
    OK(aclrtCreateStream(&scatter));
    OK(aclrtCreateEventExWithFlag(&event, 1));
    OK(aclrtCreateEventExWithFlag(&quiet, 0));
    unsigned char *a = device_memory(1 << 20), *b = device_memory(1 << 20), *host = host_memory(1 << 20);
    faults("done:jitter=300,of=copy");
    for (int round = 1; round <= 20; round++) {
        memset(host, round, 1 << 20);
        OK(aclrtMemcpyAsync(a, 1 << 20, host, 1 << 20, H2D, reads));
        OK(aclrtRecordEvent(event, reads));
        OK(aclrtStreamWaitEvent(scatter, event));
        OK(aclrtMemcpyAsync(b, 1 << 20, a, 1 << 20, D2D, scatter));
        OK(aclrtMemcpyAsync(host, 1 << 20, b, 1 << 20, D2H, scatter));
        OK(aclrtSynchronizeStream(scatter));
        CHECK(host[0] == round && host[(1 << 20) - 1] == round);
    }
    expect_none();
    CODE(107000, aclrtStreamWaitEvent(scatter, quiet)); /* created without SYNC */
    OK(aclrtDestroyEvent(event));
    OK(aclrtCreateEventExWithFlag(&event, 1));
    OK(aclrtStreamWaitEvent(scatter, event));
    expect_violation("never recorded");
    /* Destroying an event that a stream still waits for disturbs nobody. */
    stuck(reads, a, host);
    OK(aclrtRecordEvent(event, reads));
    OK(aclrtStreamWaitEvent(scatter, event));
    OK(aclrtDestroyEvent(event));
    faults("");
    OK(aclrtStreamAbort(reads));
    OK(aclrtStreamAbort(scatter));
    expect_none();
}

void elapsed_time(void)
{
    void *a, *b, *stream, *other, *untimed;
    float ms = -1;
    start();
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateStream(&other));
    OK(aclrtCreateEvent(&a));
    OK(aclrtCreateEventWithFlag(&b, 8));
    OK(aclrtCreateEventWithFlag(&untimed, 1));
    CODE(107000, aclrtEventElapsedTime(&ms, a, b));
    unsigned char *device = device_memory(64), *host = host_memory(64);
    faults("done:delay=2000,of=copy");
    OK(aclrtRecordEvent(a, stream));
    OK(aclrtMemcpyAsync(device, 64, host, 64, H2D, stream));
    OK(aclrtRecordEvent(b, stream));
    OK(aclrtRecordEvent(untimed, stream));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtEventElapsedTime(&ms, a, b));
    CHECK(ms >= 2);
    CODE(107000, aclrtEventElapsedTime(&ms, a, untimed));
    OK(aclrtResetEvent(b, other));
    OK(aclrtRecordEvent(b, other));
    OK(aclrtSynchronizeStream(other));
    CODE(107000, aclrtEventElapsedTime(&ms, a, b)); /* not on one stream */
    expect_none();
}
