/* Prototypes of HCCL, and what its scenarios share. Most run as two processes: the parent is rank 0, the
 * child rank 1, and they tell each other how far they are through a socket. */
#ifndef HCCL_CHECKS_H
#define HCCL_CHECKS_H

#include "check.h"

typedef struct { int type; void *addr; uint64_t size; } mem_t;
typedef struct { uint32_t localRank, remoteRank; char desc[504]; } mem_desc_t;
typedef struct { mem_desc_t *array; uint32_t arrayLength; } mem_descs_t;
typedef struct { void *localAddr, *remoteAddr; uint64_t count; int dataType; } op_t;
typedef struct { int topoType; uint64_t rsvd[3]; } prepare_t;
typedef struct { char internal[4108]; } root_t;
typedef struct {
    size_t configSize;
    uint32_t magic, version;
    uint64_t reserved;
    uint32_t bufferSize, deterministic;
    char name[128], udi[128];
    uint32_t expansion, trafficClass, serviceLevel;
    char room[3800];
} config_t;

int HcclCommInitClusterInfoMemConfig(const char *, uint32_t, config_t *, void **), HcclCommDestroy(void *);
int HcclRegisterGlobalMem(const mem_t *, void **), HcclDeregisterGlobalMem(void *);
int HcclCommBindMem(void *, void *), HcclCommUnbindMem(void *, void *), HcclCommPrepare(void *, const prepare_t *, int);
int HcclBatchPut(void *, uint32_t, op_t *, uint32_t, void *), HcclBatchGet(void *, uint32_t, op_t *, uint32_t, void *);
const char *HcclGetErrorString(int);
int HcclGetCommAsyncError(void *, int *);
uint32_t HcclGetCommConfigCapability(void);
int HcclGetRootInfo(root_t *), HcclCommInitRootInfo(uint32_t, const root_t *, uint32_t, void **);
int HcclCommInitRootInfoConfig(uint32_t, const root_t *, uint32_t, const config_t *, void **);
int HcclCommInitClusterInfo(const char *, uint32_t, void **), HcclCommInitClusterInfoConfig(const char *, uint32_t, config_t *, void **);
int HcclRegisterMem(void *, uint32_t, int, void *, uint64_t, mem_desc_t *), HcclDeregisterMem(void *, mem_desc_t *);
int HcclExchangeMemDesc(void *, uint32_t, mem_descs_t *, int, mem_descs_t *, uint32_t *);
int HcclEnableMemAccess(void *, mem_desc_t *, mem_t *), HcclDisableMemAccess(void *, mem_desc_t *);
int HcclRemapRegistedMemory(void **, mem_t *, uint64_t, uint64_t);

#define MEGABYTE ((size_t)1 << 20)
#define UINT8 7

/* One end of a pair: a communicator with one pool of device memory, bound, and the peer's address of its own. */
struct end { int rank, socket; pid_t child; void *comm, *stream, *handle; unsigned char *pool; unsigned char *theirs; size_t size; };

extern const char *table; /* two servers, so RoCE */
extern const char *table_one_server;

config_t config_for(const char *name);
void *communicator(const char *ranks, int rank, const char *name);
void *registered(int type, void *memory, size_t size); /* globally */
void prepare(void *comm);
op_t op(void *local, void *remote, size_t bytes);

/* Starts the other process and makes a whole pair in both. body runs in the child, which ends then. */
struct end pair(size_t size, void (*body)(struct end *));
struct end pair_over(const char *ranks, size_t size, void (*body)(struct end *));
struct end split(void (*body)(struct end *)); /* two processes and their socket, nothing else */
void build(struct end *end, const char *ranks, const char *name, size_t size); /* device, pool, communicator, prepared */
void tell(struct end *end, const void *data, size_t n); /* to the other process */
void hear(struct end *end, void *data, size_t n);
void step(struct end *end); /* the other process may go on */
void await(struct end *end);
void join(struct end *end); /* the child ended well */
void tear_down(struct end *end); /* in order, and nothing may be left */

/* A scenario makes one pair: a process that has used the library is not forked. */
#define HCCL_SCENARIOS(X) \
    X(put_and_get) X(sizes) X(descriptor_limits) X(faulty_fifth) X(bind_rules) X(registration_rules) X(init_rules) X(rank_tables) \
    X(prepare_rules) X(names_differ) X(prepare_by_rule) X(tables_differ) X(rank_is_not_known) \
    X(target_stopped) X(target_killed) X(peer_gone_silently) X(torn) \
    X(bound_late) X(unbind_keeps) X(deregister_revokes) X(destroy_revokes) X(hccs_lingers) X(host_target) \
    X(two_streams) X(overlapping) X(after_abort) X(destroy_rules) X(parallel_init) X(free_registered) X(last_registration) \
    X(batch_faults) X(link_fails) X(link_hangs) X(link_is_silent) X(late_landing) X(late_but_destroyed) X(late_beyond_r) X(reordered) X(peer_writes_watched) X(timing) \
    X(registered_host) X(older_sequence) X(root_info) X(error_names)

#define X(name) void name(void);
HCCL_SCENARIOS(X)
#undef X

#endif
