/* Device memory of one process in another. */
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl.h"

#define KEY 65
#define SIZE (3u << 20)

static void tell(int socket, const void *data, size_t n) { CHECK(write(socket, data, n) == (ssize_t)n); }
static void hear(int socket, void *data, size_t n) { CHECK(recv(socket, data, n, MSG_WAITALL) == (ssize_t)n); }

/* The process that imports: it finds what the owner stored, and stores something itself. */
static void importer(int socket)
{
    char key[KEY], wrong[KEY];
    unsigned char *imported, *again, got[64], *own;
    int32_t me, word = 0;
    attributes_t a;
    start();
    OK(aclrtDeviceGetBareTgid(&me));
    CHECK(me == getpid());
    hear(socket, key, sizeof key);
    CODE(107000, aclrtIpcMemImportByKey((void **)&imported, key, 0)); /* not entered yet */
    tell(socket, &me, sizeof me);
    hear(socket, &word, sizeof word);
    memcpy(wrong, key, sizeof key);
    wrong[0] = key[0] == '0' ? '1' : '0';
    CODE(107000, aclrtIpcMemImportByKey((void **)&imported, wrong, 0));
    CODE(100000, aclrtIpcMemImportByKey((void **)&imported, "../x", 0));
    OK(aclrtIpcMemImportByKey((void **)&imported, key, 1));
    CODE(107000, aclrtIpcMemImportByKey((void **)&again, key, 0));
    OK(aclrtPointerGetAttributes(imported + 5, &a));
    CHECK(a.location.type == 1 && a.location.id == 0);
    download(got, imported + SIZE - 64, 64);
    for (size_t i = 0; i < sizeof got; i++)
        CHECK(got[i] == 7);
    own = device_memory(4096);
    OK(aclrtMemset(own, 4096, 9, 4096));
    OK(aclrtMemcpy(imported, 4096, own, 4096, D2D));
    CODE(107000, aclrtMemcpy(imported + SIZE - 64, 4096, own, 4096, D2D)); /* beyond its end */
    tell(socket, &me, sizeof me);
    hear(socket, &word, sizeof word);
    OK(aclrtIpcMemClose(key));
    CODE(107000, aclrtIpcMemClose(key));
    CODE(107000, aclrtMemcpy(imported, 64, own, 64, D2D));
    OK(aclrtFree(own));
    CHECK(stat_of("live.ipc_imports") == 0);
    expect_none();
    tell(socket, &me, sizeof me);
}

void memory_of_another(void)
{
    int sockets[2], status;
    char key[KEY];
    int32_t pid, word = 0;
    unsigned char got[4096];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    pid_t child = fork(); /* before the library has done anything: each has one of its own */
    CHECK(child >= 0);
    if (child == 0) {
        close(sockets[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        importer(sockets[1]);
        _exit(0);
    }
    close(sockets[1]);
    start();
    unsigned char *memory = device_memory(SIZE);
    OK(aclrtMemset(memory, SIZE, 7, SIZE));
    CODE(100000, aclrtIpcMemGetExportKey(memory, SIZE, key, 64, 0));
    CODE(107000, aclrtIpcMemGetExportKey(memory + 4096, 4096, key, KEY, 0));
    CODE(107000, aclrtIpcMemGetExportKey(memory, 8u << 20, key, KEY, 0));
    CODE(107000, aclrtIpcMemGetExportKey(host_memory(4096), 4096, key, KEY, 0));
    OK(aclrtIpcMemGetExportKey(memory, SIZE, key, KEY, 0));
    CODE(107000, aclrtIpcMemImportByKey((void **)&memory, key, 0)); /* it is this process's own */
    tell(sockets[0], key, sizeof key);
    hear(sockets[0], &pid, sizeof pid);
    CHECK(pid == child);
    OK(aclrtIpcMemSetImportPid(key, &pid, 1));
    tell(sockets[0], &word, sizeof word);
    hear(sockets[0], &word, sizeof word);
    download(got, memory, sizeof got);
    for (size_t i = 0; i < sizeof got; i++)
        CHECK(got[i] == 9);
    tell(sockets[0], &word, sizeof word);
    hear(sockets[0], &word, sizeof word);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(aclrtIpcMemClose(key));
    CHECK(stat_of("live.ipc_exports") == 0);
    OK(aclrtFree(memory));
    expect_none();
    memory = device_memory(4096); /* what is freed while it is exported is a broken rule */
    OK(aclrtIpcMemGetExportKey(memory, 4096, key, KEY, 1));
    OK(aclrtFree(memory));
    expect_violation("exported to other processes");
    OK(aclrtIpcMemClose(key));
}
