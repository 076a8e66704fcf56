/* Memory: quotas, alignment, what is freed, registration of host memory. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "acl.h"

void allocation(void)
{
    size_t free_before, free_now, total, size;
    void *p, *base;
    attributes_t a;
    unsigned char got[4096];
    start();
    CODE(100000, aclrtMalloc(&p, 0, 0));
    CODE(100000, aclrtMalloc(NULL, 1, 0));
    CODE(100000, aclrtMallocHost(&p, 0));
    OK(aclrtGetMemInfo(1, &free_before, &total));
    CHECK(free_before == total && total == (size_t)1 << 30);
    unsigned char *small = device_memory(100), *large = device_memory((1 << 20) + 1);
    CHECK((uintptr_t)small % 64 == 0 && (uintptr_t)large % (2 << 20) == 0);
    OK(aclrtGetMemInfo(1, &free_now, &total));
    CHECK(free_before - free_now == (size_t)(128 + 32 + (2 << 20)));
    OK(aclrtGetMemInfo(0, &free_now, &total));
    CHECK(free_now == 0 && total == 0); /* an attribute this chip does not know */
    download(got, small, 100);
    CHECK(got[0] == 0xa5 && got[99] == 0xa5); /* not zeros */
    OK(aclrtPointerGetAttributes(small + 50, &a));
    CHECK(a.location.type == 1 && a.location.id == 0 && a.pageSize == 4096);
    OK(aclrtPointerGetAttributes(large, &a));
    CHECK(a.pageSize == 2 << 20);
    void *host = host_memory(64);
    OK(aclrtPointerGetAttributes(host, &a));
    CHECK(a.location.type == 0);
    OK(aclrtPointerGetAttributes(&a, &a));
    CHECK(a.location.type == 2);
    OK(aclrtMemGetAddressRange(large + 5, &base, &size));
    CHECK(base == large && size == (1 << 20) + 1);
    CODE(107000, aclrtMemGetAddressRange(host, &base, &size));
    OK(aclrtMallocWithCfg(&p, 64, 0x1001, NULL));
    OK(aclrtFreeWithDevSync(p));
    OK(aclrtFree(small));
    OK(aclrtFree(large));
    OK(aclrtFreeHost(host));
    OK(aclrtGetMemInfo(1, &free_now, &total));
    CHECK(free_now == total);
    expect_none();
    CODE(100000, aclrtFree(NULL));
    CODE(107000, aclrtFree(small));
    expect_violation("free of");
    CODE(107000, aclrtFreeHost(got));
    expect_violation("free of");
}

void out_of_memory(void)
{
    void *p, *q;
    start();
    CODE(207001, aclrtMalloc(&p, ((size_t)1 << 30) + 1, 0));
    CODE(207001, aclrtMalloc(&p, SIZE_MAX - 5, 0));
    OK(aclrtMalloc(&p, (size_t)768 << 20, 0));
    CODE(207001, aclrtMalloc(&q, (size_t)512 << 20, 0));
    OK(aclrtSetDevice(1)); /* each device has its own */
    OK(aclrtMalloc(&q, (size_t)512 << 20, 0));
    OK(aclrtFree(q));
    OK(aclrtFree(p));
    faults("oom:device=0,after=1048576;oom:host,after=8192,code=200000");
    OK(aclrtSetDevice(0));
    OK(aclrtMalloc(&p, 1000000, 0));
    CODE(207001, aclrtMalloc(&q, 100000, 0));
    OK(aclrtFree(p));
    OK(aclrtMallocHost(&p, 4096));
    CODE(200000, aclrtMallocHost(&q, 8192));
    OK(aclrtFreeHost(p));
    expect_none();
    CHECK(stat_of("injected") == 2);
    CHECK(stat_of("live.device_blocks") == 0 && stat_of("live.host_blocks") == 0);
    CHECK(stat_of("device_memory_high") == 768 << 20);
}

/* Runs a function that must die by a signal, in a process of its own. */
static void must_fault(void (*touch)(volatile unsigned char *), unsigned char *p)
{
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer would explain it at length */
        touch(p);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void read_byte(volatile unsigned char *p) { (void)*p; }

void strict_memory(void)
{
    start();
    unsigned char *device = device_memory(4096), *host = host_memory(4096);
    must_fault(read_byte, device);
    OK(aclrtFreeHost(host));
    must_fault(read_byte, host);
}

void freed_during_use(void)
{
    void *stream;
    start();
    OK(aclrtCreateStream(&stream));
    unsigned char *device = device_memory(64), *host = host_memory(64), *later = device_memory(64);
    stuck(stream, device, host);
    OK(aclrtMemcpyAsync(later, 64, host, 64, H2D, stream));
    faults("");
    OK(aclrtFree(later));
    expect_violation("free during use");
    OK(aclrtStreamAbort(stream));
    /* And freed memory is not touched by a task that runs later. */
    void *second, *event;
    OK(aclrtCreateStream(&second));
    OK(aclrtCreateEvent(&event));
    stuck(second, device, host);
    OK(aclrtRecordEvent(event, second));
    later = device_memory(64);
    OK(aclrtStreamWaitEvent(stream, event));
    OK(aclrtMemcpyAsync(later, 64, host, 64, H2D, stream));
    OK(aclrtFree(later));
    release();
    CODE(507053, aclrtSynchronizeStream(stream));
    char reply[1000];
    cannemu_control("violations", reply, sizeof reply);
    CHECK(strstr(reply, "free during use") != NULL && strstr(reply, "use after free") != NULL);
}

void host_registration(void)
{
    void *device_pointer = NULL, *other;
    start();
    unsigned char *pool = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *device = device_memory(4096), got[64];
    attributes_t a;
    CODE(107008, aclrtHostRegister(pool + 64, 4096, 0, &device_pointer));
    CODE(100000, aclrtHostRegister(NULL, 4096, 0, &device_pointer));
    CODE(100000, aclrtHostRegister(pool, 0, 0, &device_pointer));
    CODE(107000, aclrtHostRegister(pool, 4096, 77, &device_pointer));
    OK(aclrtHostRegister(pool, 65536, 0, &device_pointer));
    CHECK(device_pointer != NULL && device_pointer != pool);
    CODE(507910, aclrtHostRegister(pool, 65536, 0, &other));
    CODE(507910, aclrtHostRegister(pool + 4096, 4096, 0, &other));
    OK(aclrtPointerGetAttributes(pool + 9, &a));
    CHECK(a.location.type == 0);
    CODE(107000, aclrtMemcpy(device, 64, device_pointer, 64, H2D)); /* not for these copies */
    memset(pool, 6, 64);
    OK(aclrtMemcpy(device, 64, pool, 64, H2D));
    download(got, device, 64);
    CHECK(got[0] == 6);
    OK(aclrtHostUnregister(pool));
    CODE(507911, aclrtHostUnregister(pool));
    OK(aclrtHostRegisterV2(pool, 65536, 0x10000000));
    CODE(507911, aclrtHostGetDevicePointer(pool, &other, 0)); /* pinned, not mapped */
    OK(aclrtHostUnregister(pool));
    OK(aclrtHostRegisterV2(pool, 65536, 0x2));
    OK(aclrtHostGetDevicePointer(pool, &other, 0));
    CHECK(other == device_pointer);
    OK(aclrtHostUnregister(pool));
    unsigned char *pinned = host_memory(8192); /* the recipe of pinned memory that is registered too */
    OK(aclrtHostRegister(pinned, 8192, 0, &other));
    OK(aclrtHostUnregister(pinned));
    CODE(107000, aclrtHostRegister(device_memory(4 << 20), 4096, 0, &other));
    CHECK(stat_of("live.host_registrations") == 0);
    expect_none();
}

void watched_memory(void)
{
    char command[100];
    start();
    unsigned char *device = device_memory(8192), *host = host_memory(8192);
    snprintf(command, sizeof command, "watch %p 4096", (void *)(host + 4096));
    CHECK(cannemu_control(command, NULL, 0) == 0);
    OK(aclrtMemcpy(host, 4096, device, 4096, D2H));
    expect_none();
    OK(aclrtMemcpy(host + 100, 4096, device, 4096, D2H));
    expect_violation("handed back");
    snprintf(command, sizeof command, "unwatch %p", (void *)(host + 4096));
    CHECK(cannemu_control(command, NULL, 0) == 0);
    OK(aclrtMemcpy(host, 8192, device, 8192, D2H));
    expect_none();
}
