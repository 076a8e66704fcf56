#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "hccl.h"

const char *table =
    "{\"status\":\"completed\",\"version\":\"1.0\",\"server_count\":\"2\",\"server_list\":["
    "{\"server_id\":\"10.0.0.1\",\"device\":[{\"device_id\":\"0\",\"device_ip\":\"192.168.1.10\",\"rank_id\":\"0\"}]},"
    "{\"server_id\":\"10.0.0.2\",\"device\":[{\"device_id\":\"0\",\"device_ip\":\"192.168.1.23\",\"rank_id\":\"1\"}]}]}";
const char *table_one_server =
    "{\"status\":\"completed\",\"version\":\"1.0\",\"server_count\":\"1\",\"server_list\":[{\"server_id\":\"10.0.0.1\",\"device\":["
    "{\"device_id\":\"0\",\"device_ip\":\"192.168.1.10\",\"rank_id\":\"0\"},"
    "{\"device_id\":\"1\",\"device_ip\":\"192.168.1.11\",\"rank_id\":\"1\"}]}]}";

config_t config_for(const char *name)
{
    config_t c = {.configSize = 300, .magic = 0xf0f0f0f0u, .version = 5, .bufferSize = 200};
    snprintf(c.name, sizeof c.name, "%s", name);
    return c;
}

void *communicator(const char *ranks, int rank, const char *name)
{
    void *comm;
    config_t c = config_for(name);
    OK(HcclCommInitClusterInfoMemConfig(ranks, (uint32_t)rank, &c, &comm));
    return comm;
}

void *registered(int type, void *memory, size_t size)
{
    void *handle;
    mem_t m = {type, memory, size};
    OK(HcclRegisterGlobalMem(&m, &handle));
    return handle;
}

void prepare(void *comm)
{
    prepare_t mesh = {0};
    OK(HcclCommPrepare(comm, &mesh, 60));
}

op_t op(void *local, void *remote, size_t bytes) { return (op_t){local, remote, bytes, UINT8}; }

void tell(struct end *end, const void *data, size_t n) { CHECK(send(end->socket, data, n, MSG_NOSIGNAL) == (ssize_t)n); }
void hear(struct end *end, void *data, size_t n) { CHECK(recv(end->socket, data, n, MSG_WAITALL) == (ssize_t)n); }

void step(struct end *end) { tell(end, "s", 1); }

void await(struct end *end)
{
    char c;
    hear(end, &c, 1);
}

/* Before the library has done anything, so that each process has one of its own. */
struct end split(void (*body)(struct end *))
{
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child > 0) {
        close(sockets[1]);
        return (struct end){.rank = 0, .socket = sockets[0], .child = child};
    }
    close(sockets[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed parent leaves nothing behind */
    struct end end = {.rank = 1, .socket = sockets[1]};
    body(&end);
    _exit(0);
}

void build(struct end *end, const char *ranks, const char *name, size_t size)
{
    if (end->pool == NULL) {
        start();
        OK(aclrtCreateStream(&end->stream));
        end->pool = device_memory(size);
        end->size = size;
        end->handle = registered(0, end->pool, size);
        OK(aclrtMemset(end->pool, size, 0, size));
    }
    end->comm = communicator(ranks, end->rank, name);
    OK(HcclCommBindMem(end->comm, end->handle));
    prepare(end->comm);
    tell(end, &end->pool, sizeof end->pool);
    hear(end, &end->theirs, sizeof end->theirs);
}

static void (*child_body)(struct end *);
static const char *child_ranks;
static size_t child_size;

static void build_and_run(struct end *end)
{
    build(end, child_ranks, "pair", child_size);
    child_body(end);
}

struct end pair_over(const char *ranks, size_t size, void (*body)(struct end *))
{
    child_body = body;
    child_ranks = ranks;
    child_size = size;
    struct end end = split(build_and_run);
    build(&end, ranks, "pair", size);
    return end;
}

struct end pair(size_t size, void (*body)(struct end *)) { return pair_over(table, size, body); }

void join(struct end *end)
{
    int status;
    CHECK(waitpid(end->child, &status, 0) == end->child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void tear_down(struct end *end)
{
    char reply[400];
    OK(HcclCommUnbindMem(end->comm, end->handle));
    OK(HcclCommDestroy(end->comm));
    OK(HcclDeregisterGlobalMem(end->handle));
    OK(aclrtDestroyStream(end->stream));
    OK(aclrtFree(end->pool));
    OK(aclrtResetDevice(0));
    if (cannemu_control("leaks", reply, sizeof reply) != 0)
        check_failed("leaks", 0, reply);
    expect_none();
}
