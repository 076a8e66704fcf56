/* Copies: every rule of the table, and batches. */
#include "acl.h"

void copy_rules(void)
{
    void *stream;
    start();
    OK(aclrtCreateStream(&stream));
    unsigned char *device = device_memory(4096), *other = device_memory(4096), *host = host_memory(4096), pageable[64];
    OK(aclrtMemcpy(NULL, 0, NULL, 0, 99)); /* nothing to do: nothing is looked at */
    CODE(107000, aclrtMemcpy(device, 8, host, 9, H2D));
    CODE(107000, aclrtMemcpy(device, 0, host, 1, H2D));
    CODE(100000, aclrtMemcpy(NULL, 8, host, 8, H2D));
    CODE(100000, aclrtMemcpy(device, 8, NULL, 8, H2D));
    CODE(100000, aclrtMemcpy(device, 8, host, 8, 6));
    CODE(100000, aclrtMemcpy(device, 8, host, 8, 7));
    OK(aclrtMemcpy(device, 8, device, 8, D2D)); /* the same place */
    CODE(107000, aclrtMemcpy(device + 4000, 200, host, 97, H2D)); /* crosses its end */
    OK(aclrtMemcpy(device + 4000, 200, host, 96, H2D));
    CODE(107000, aclrtMemcpy(host + 4000, 200, device, 97, D2H));
    CODE(107000, aclrtMemcpy(host, 8, host + 64, 8, H2D)); /* that is no device memory */
    CODE(107000, aclrtMemcpy(host, 8, device, 8, H2H)); /* and that no host memory */
    CODE(107000, aclrtMemcpy(pageable, 8, host, 8, D2H));
    OK(aclrtMemcpy(pageable, 8, host, 8, H2H));
    OK(aclrtMemcpy(other, 64, device, 64, D2D));
    OK(aclrtMemcpy(other, 64, host, 64, KIND_DEFAULT));
    OK(aclrtMemcpy(other, 64, host, 64, 5));
    CODE(207000, aclrtMemcpyAsync(host, 8, host + 64, 8, H2H, stream));
    OK(aclrtMemcpyAsync(pageable, 8, device, 8, D2H, stream));
    OK(aclrtMemset(device, 4096, 0x17, 4096));
    CODE(107000, aclrtMemset(device, 8, 0, 9));
    CODE(107000, aclrtMemset(device + 4090, 100, 0, 7));
    download(pageable, device + 4032, 64);
    CHECK(pageable[63] == 0x17);
    OK(aclrtFree(other));
    CODE(107000, aclrtMemcpy(other, 64, host, 64, H2D)); /* freed */
    CODE(107000, aclrtMemcpy(pageable, 64, other, 64, KIND_DEFAULT));
    expect_none();
}

void copy_batch(void)
{
    enum { N = 64 };
    void *stream, *dsts[N], *srcs[N];
    size_t sizes[N], limits[N], index[2] = {0, 1}, fail = 7;
    start();
    OK(aclrtCreateStream(&stream));
    unsigned char *device = device_memory(N * 128), *host = host_memory(N * 128), *back = host_memory(N * 128);
    batch_attribute_t down[2] = {{.dst = {0, 1}, .src = {0, 0}}, {.dst = {0, 1}, .src = {0, 0}}};
    batch_attribute_t up = {.dst = {0, 0}, .src = {0, 1}};
    for (int i = 0; i < N * 128; i++)
        host[i] = (unsigned char)(i / 128 + i);
    for (int i = 0; i < N; i++) {
        dsts[i] = device + 128 * i;
        srcs[i] = host + 128 * (N - 1 - i);
        sizes[i] = limits[i] = 128;
    }
    OK(aclrtMemcpyBatch(dsts, limits, srcs, sizes, N, down, index, 2, &fail));
    CHECK(fail == SIZE_MAX);
    for (int i = 0; i < N; i++) {
        srcs[i] = device + 128 * i;
        dsts[i] = back + 128 * (N - 1 - i);
    }
    OK(aclrtMemcpyBatchAsync(dsts, limits, srcs, sizes, N, &up, index, 1, &fail, stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK(memcmp(host, back, N * 128) == 0);
    sizes[5] = 129;
    CODE(107000, aclrtMemcpyBatch(dsts, limits, srcs, sizes, N, &up, index, 1, &fail));
    CHECK(fail == 5);
    sizes[5] = 128;
    srcs[9] = host;
    CODE(107000, aclrtMemcpyBatchAsync(dsts, limits, srcs, sizes, N, &up, index, 1, &fail, stream));
    CHECK(fail == 9);
    srcs[9] = device + 128 * 9;
    up.src.id = 1; /* it is on device 0 */
    CODE(107000, aclrtMemcpyBatch(dsts, limits, srcs, sizes, N, &up, index, 1, &fail));
    CHECK(fail == 0);
    CODE(100000, aclrtMemcpyBatch(dsts, limits, srcs, sizes, N, down, index, 1, NULL));
    CODE(107000, aclrtMemcpyBatch(dsts, limits, srcs, sizes, 0, down, index, 1, &fail));
    CODE(107000, aclrtMemcpyBatch(dsts, limits, srcs, sizes, 1, down, index, 2, &fail));
    index[0] = 1;
    CODE(107000, aclrtMemcpyBatch(dsts, limits, srcs, sizes, N, down, index, 1, &fail));
    index[0] = 0, index[1] = 0;
    CODE(107000, aclrtMemcpyBatch(dsts, limits, srcs, sizes, N, down, index, 2, &fail));
    index[1] = 1, down[1] = up;
    CODE(107000, aclrtMemcpyBatch(dsts, limits, srcs, sizes, N, down, index, 2, &fail)); /* two directions */
    CHECK(fail == SIZE_MAX);
    expect_none();
    set("soc=Ascend910A");
    CODE(207000, aclrtMemcpyBatch(dsts, limits, srcs, sizes, N, &up, index, 1, &fail));
}

enum { THREADS = 16, ROUNDS = 8, BYTES = 40000 };

static void *worker(void *argument)
{
    int me = (int)(intptr_t)argument;
    unsigned char *host = malloc(BYTES), *back = malloc(BYTES);
    void *stream;
    OK(aclrtSetDevice(me % 2));
    OK(aclrtCreateStream(&stream));
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char *device = device_memory(BYTES), *pinned = host_memory(BYTES);
        memset(host, me * 16 + round, BYTES);
        OK(aclrtMemcpyAsync(device, BYTES, host, BYTES, H2D, stream));
        OK(aclrtMemcpyAsync(pinned, BYTES, device, BYTES, D2H, stream));
        OK(aclrtSynchronizeStream(stream));
        OK(aclrtMemcpy(back, BYTES, pinned, BYTES, H2H));
        CHECK(memcmp(host, back, BYTES) == 0);
        OK(aclrtFree(device));
        OK(aclrtFreeHost(pinned));
    }
    OK(aclrtDestroyStream(stream));
    free(host);
    free(back);
    return NULL;
}

void many_threads(void)
{
    pthread_t threads[THREADS];
    char reply[400];
    OK(aclInit(NULL));
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, worker, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    OK(aclrtResetDeviceForce(0));
    OK(aclrtResetDeviceForce(1));
    expect_none();
    CHECK(cannemu_control("leaks", reply, sizeof reply) == 0);
}

/* A copy can be seen half done: here its own fault cuts it off. */
void partial_copy(void)
{
    void *stream;
    start();
    OK(aclrtCreateStream(&stream));
    unsigned char *device = device_memory(65536), *host = host_memory(65536), *back = host_memory(65536);
    memset(host, 1, 65536);
    OK(aclrtMemset(device, 65536, 0, 65536));
    faults("done:partial=1,bytes=10000,code=507013,of=copy");
    OK(aclrtMemcpyAsync(device, 65536, host, 65536, H2D, stream));
    CODE(507013, aclrtSynchronizeStream(stream));
    OK(aclrtMemcpy(back, 65536, device, 65536, D2H));
    CHECK(back[0] == 1 && back[9999] == 1 && back[10000] == 0 && back[65535] == 0);
    expect_none();
}
