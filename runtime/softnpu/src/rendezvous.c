/* How two communicators connect: over a unix socket in the run directory, whose name both can compute. The lower rank
 * listens. Each end sends what the other may reach, with the files of its arenas. A last byte in each direction makes
 * sure that both have finished. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "hccl.h"

#define MAX_EXPORTS 65536
#define FILES 3

struct hello {
    uint64_t digest, comm_generation, exports, device_length, host_length;
    uint32_t rank, pid, comm_slot;
    char server[ID_SIZE], pod[ID_SIZE];
};

static uint64_t hash(const char *text)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *text != '\0'; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return h;
}

static bool ready(int socket, short events, int64_t deadline)
{
    struct pollfd p = {.fd = socket, .events = events};
    for (;;) {
        int64_t left = deadline == FOREVER ? 1000 : (deadline - now_ns() + 999999) / 1000000;
        if (left <= 0)
            return false;
        int n = poll(&p, 1, left > 1000 ? 1000 : (int)left);
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

bool send_all(int socket, const void *data, size_t n, int64_t deadline)
{
    for (const char *at = data; n > 0;) {
        ssize_t sent = send(socket, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            at += sent;
            n -= (size_t)sent;
        } else if ((errno != EAGAIN && errno != EINTR) || !ready(socket, POLLOUT, deadline))
            return false;
    }
    return true;
}

bool receive_all(int socket, void *data, size_t n, int64_t deadline)
{
    for (char *at = data; n > 0;) {
        ssize_t got = recv(socket, at, n, MSG_DONTWAIT);
        if (got > 0) {
            at += got;
            n -= (size_t)got;
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR) || !ready(socket, POLLIN, deadline))
            return false;
    }
    return true;
}

/* The file descriptors are sent with the first byte. */
static bool send_files(int socket, const int files[FILES])
{
    char byte = 'F', room[CMSG_SPACE(sizeof(int) * FILES)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int) * FILES);
    memcpy(CMSG_DATA(control), files, sizeof(int) * FILES);
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

static bool receive_files(int socket, int files[FILES], int64_t deadline)
{
    char byte, room[CMSG_SPACE(sizeof(int) * FILES)];
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (!ready(socket, POLLIN, deadline) || recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1)
        return false;
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    if (control == NULL || control->cmsg_len != CMSG_LEN(sizeof(int) * FILES))
        return false;
    memcpy(files, CMSG_DATA(control), sizeof(int) * FILES);
    return true;
}

static unsigned char *map_peer(int file, size_t length)
{
    void *mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

/* Takes over what the peer sent. */
static bool furnish(struct link *link, const struct hello *hello, const int files[FILES])
{
    link->pid = (int)hello->pid;
    link->comm_slot = hello->comm_slot;
    link->comm_generation = hello->comm_generation;
    link->device_length = hello->device_length;
    link->host_length = hello->host_length;
    link->share = share_map(files[0]);
    link->device = map_peer(files[1], link->device_length);
    link->host = map_peer(files[2], link->host_length);
    return link->share != NULL && link->device != NULL && link->host != NULL;
}

static int exchange(struct link *link, const struct hello *mine, const struct export *exports, const int files[FILES],
                    const struct meeting *meeting, int64_t deadline)
{
    struct hello peer;
    int got[FILES];
    char done = 'A', answer;
    if (!send_files(link->socket, files) || !send_all(link->socket, mine, sizeof *mine, deadline) ||
        !receive_files(link->socket, got, deadline))
        return HCCL_E_TIMEOUT;
    bool whole = receive_all(link->socket, &peer, sizeof peer, deadline) && peer.exports <= MAX_EXPORTS &&
                 peer.rank == meeting->peer && peer.comm_slot < SLOTS && furnish(link, &peer, got);
    for (int i = 0; i < FILES; i++)
        close(got[i]);
    if (!whole)
        return HCCL_E_TIMEOUT;
    if (peer.digest != mine->digest) {
        violation("the two ends of %s were given different rank tables", meeting->name);
        return HCCL_E_PARA;
    }
    link->hccs = link_chosen_hccs(meeting->server, meeting->pod, peer.server, peer.pod);
    link->export_count = peer.exports;
    link->exports = calloc(peer.exports + 1, sizeof *link->exports);
    if (link->exports == NULL)
        return HCCL_E_MEMORY;
    /* The lower rank sends first, otherwise two long lists would wait for each other in full buffers. */
    size_t out = mine->exports * sizeof *exports, in = peer.exports * sizeof *exports;
    bool first = meeting->rank < meeting->peer;
    bool told = first ? send_all(link->socket, exports, out, deadline) && receive_all(link->socket, link->exports, in, deadline)
                      : receive_all(link->socket, link->exports, in, deadline) && send_all(link->socket, exports, out, deadline);
    if (!told || !send_all(link->socket, &done, 1, deadline) || !receive_all(link->socket, &answer, 1, deadline))
        return HCCL_E_TIMEOUT;
    return 0;
}

/* Uses the directory's descriptor, because the path of a run directory may be longer than a socket's name. */
static int address_of(const char *name, struct sockaddr_un *address)
{
    mkdir(settings.directory, 0700);
    int directory = open(settings.directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%016llx", directory, (unsigned long long)hash(name));
    return directory;
}

static int listen_for(const struct sockaddr_un *address, int64_t deadline)
{
    int met = -1, server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    unlink(address->sun_path);
    if (bind(server, (const struct sockaddr *)address, sizeof *address) == 0) {
        if (listen(server, 1) == 0 && ready(server, POLLIN, deadline))
            met = accept4(server, NULL, NULL, SOCK_CLOEXEC);
        unlink(address->sun_path);
    }
    close(server);
    return met;
}

static int look_for(const struct sockaddr_un *address, int64_t deadline)
{
    struct timespec moment = {.tv_nsec = 1000000};
    while (now_ns() < deadline) {
        int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(client, (const struct sockaddr *)address, sizeof *address) == 0)
            return client;
        close(client);
        nanosleep(&moment, NULL); /* until the other end is there */
    }
    return -1;
}

static int once(const struct meeting *meeting, const struct hello *mine, const struct export *exports, const int files[FILES],
                int64_t deadline, struct link *link)
{
    struct sockaddr_un address;
    int directory = address_of(meeting->name, &address);
    if (directory < 0)
        return HCCL_E_SYSCALL;
    link->socket = meeting->rank < meeting->peer ? listen_for(&address, deadline) : look_for(&address, deadline);
    close(directory);
    if (link->socket < 0)
        return HCCL_E_TIMEOUT;
    return exchange(link, mine, exports, files, meeting, deadline);
}

static bool own_files(int device, int files[FILES], struct hello *mine)
{
    struct arena **memory = &devices[device].memory;
    pthread_mutex_lock(&npu_lock);
    files[0] = share_file();
    if (*memory == NULL)
        *memory = arena_new(device, (size_t)settings.device_memory);
    if (host_arena == NULL)
        host_arena = arena_new(-1, (size_t)settings.host_memory);
    bool whole = files[0] >= 0 && *memory != NULL && host_arena != NULL;
    if (whole) {
        files[1] = (*memory)->fd;
        files[2] = host_arena->fd;
        mine->device_length = (*memory)->length;
        mine->host_length = host_arena->length;
    }
    pthread_mutex_unlock(&npu_lock);
    return whole;
}

struct link *meet(const struct meeting *meeting, const struct export *exports, size_t count, uint32_t comm_slot,
                  uint64_t comm_generation, int64_t deadline, int *code)
{
    int files[FILES];
    struct timespec moment = {.tv_nsec = 1000000};
    struct hello mine = {.digest = meeting->digest, .comm_generation = comm_generation, .exports = count, .rank = meeting->rank,
                         .pid = (uint32_t)getpid(), .comm_slot = comm_slot};
    strcpy(mine.server, meeting->server);
    strcpy(mine.pod, meeting->pod);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* registered host memory is reached through the kernel */
    *code = own_files(meeting->device, files, &mine) ? HCCL_E_TIMEOUT : HCCL_E_MEMORY;
    while (*code == HCCL_E_TIMEOUT && now_ns() < deadline) {
        struct link *link = calloc(1, sizeof *link);
        if (link == NULL)
            return NULL;
        link->references = 1;
        *code = once(meeting, &mine, exports, files, deadline, link);
        if (*code == 0)
            return link;
        link_drop(link);
        nanosleep(&moment, NULL);
    }
    return NULL;
}
