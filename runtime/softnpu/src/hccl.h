/* Declarations that the files of the HCCL half share. The lock is npu_lock throughout. Whatever a running transfer
 * reads without the lock is atomic, or does not change while the transfer holds its link. */
#ifndef HCCL_H
#define HCCL_H

#include "npu.h"

#define MAX_RANKS 64
#define NAME_SIZE 128
#define ID_SIZE 65
#define SLOTS 4096

/* ---- share.c: one shared page of this process that its peers map; its slots show what is revoked ---- */

struct slot {
    uint64_t generation;
    int64_t revoked_at; /* 0: valid; else the time of revocation by CLOCK_MONOTONIC, which all processes share */
    uint32_t arriving;  /* pieces that peers are storing or loading over RoCE right now */
};
struct share {
    struct slot slots[SLOTS];
    struct { uint64_t start, length; } watched[64];
    uint32_t watch_count;
    uint64_t watch_hits; /* pieces that peers wrote into watched memory */
};

int share_file(void); /* -1: it could not be made */
bool share_take(uint32_t *slot, uint64_t *generation);
void share_withdraw(uint32_t slot); /* peers begin no further piece */
bool share_quiet(uint32_t slot);    /* whether no piece is in flight */
uint32_t share_arriving(void);      /* in all slots */
void share_revoke(uint32_t slot);   /* withdraws the slot and frees it */
struct share *share_map(int file);
void share_watch(const uintptr_t *starts, const size_t *lengths, size_t count);
uint64_t share_hits(void);

/* ---- registry.c ---- */

enum via { VIA_DEVICE, VIA_HOST, VIA_PROCESS }; /* how a peer reaches it: through the arenas, or the process's memory */

/* A registration as it is described to peers. */
struct export { uint64_t address, size, offset, generation; uint32_t slot; int32_t type, via; };

struct registration {
    void *handle, *comm; /* comm: of HcclRegisterMem; NULL for a global one */
    int type, device, bindings, count;
    uintptr_t start;
    size_t size;
    struct export told;
};

int registration_make(int type, void *addr, uint64_t size, void *comm, struct registration **made);
void registration_end(struct registration *registration);
bool registration_covers(uintptr_t start, size_t size);

/* ---- json.c, ranktable.c ---- */

struct json;
struct json *json_parse(const char *text); /* NULL: it is not JSON */
void json_free(struct json *json);
const struct json *json_member(const struct json *object, const char *name);
const char *json_text(const struct json *value); /* NULL: absent, or no string */
const struct json *json_first(const struct json *array); /* NULL: no array, or empty */
const struct json *json_next(const struct json *element);

struct rank { char server[ID_SIZE], address[64], pod[ID_SIZE]; int device, port; };
int ranktable_parse(const char *text, struct rank ranks[MAX_RANKS], uint32_t *count);

/* ---- link.c, rendezvous.c ---- */

/* The way to one peer. Transfers in flight hold it; closing it does not wait for them. */
struct link {
    int references, socket, pid;
    bool closed, hccs; /* closed: atomic */
    struct share *share;
    uint32_t comm_slot;
    uint64_t comm_generation;
    unsigned char *device, *host;
    size_t device_length, host_length;
    struct export *exports;
    size_t export_count;
    bool down, silent, hangs; /* set by a fault rule; atomic */
    int moving;               /* number of pieces that our threads are moving over it now; atomic */
};

/* What both ends of a pair agree on before they connect. */
struct meeting { char name[NAME_SIZE + 200]; uint32_t rank, peer; uint64_t digest; int device; char server[ID_SIZE], pod[ID_SIZE]; };

struct link *meet(const struct meeting *meeting, const struct export *exports, size_t count, uint32_t comm_slot,
                  uint64_t comm_generation, int64_t deadline, int *code); /* without the lock */
bool link_chosen_hccs(const char *server, const char *pod, const char *other_server, const char *other_pod);
void link_drop(struct link *link);
void link_close(struct link *link);
bool link_gone(const struct link *link); /* the peer has closed its end, or is dead */
/* for one piece; false: the link is closed or the memory revoked */
bool link_enter(struct link *link, const struct export *export);
void link_leave(struct link *link, const struct export *export);
bool link_peer_dead(const struct link *link); /* gone without having closed its end */
const struct export *link_export(const struct link *link, uint64_t address, uint64_t length);
bool link_allows(const struct link *link, const struct export *export); /* whether nothing of it was revoked */
int link_copy(const struct link *link, const struct export *export, uint64_t address, unsigned char *local, size_t n, bool put);
bool send_all(int socket, const void *data, size_t n, int64_t deadline);
bool receive_all(int socket, void *data, size_t n, int64_t deadline);

/* ---- work.c, batch.c, late.c ---- */

struct element { uint64_t local, remote, bytes; struct export export; struct stretch here; };

/* The pieces that one batch moves, and its progress. It belongs to a task, or to the late landing of an aborted one. */
struct work {
    struct work *next; /* list of batches whose bell was never rung */
    struct link *link;
    void *comm;
    bool put, blind; /* blind: ignores revocation and closed links */
    size_t count, element; /* the element and offset of the next piece */
    uint64_t offset, total;
    struct element *elements;
    size_t *order; /* of pieces, when a rule wants them out of order; else NULL */
    size_t pieces, piece;
};

struct work *work_new(struct link *link, void *comm, bool put, size_t room);
void work_free(struct work *work);
void work_hold(struct work *work, bool hold); /* counts or discounts it as a user of local memory */
bool work_shuffle(struct work *work);
int work_move(struct work *work, struct task *task); /* task: whose cancelling and faults count; may be NULL */
bool work_overlaps(const struct work *work);
void work_enter(struct work *work); /* counts the batch as in flight */
void work_leave(struct work *work);
bool late_takes(struct work *work); /* whether an aborted transfer will land all the same; then late.c owns it */

/* ---- comm.c ---- */

struct work;
struct communicator {
    void *handle;
    char name[NAME_SIZE];
    int device;
    uint32_t rank, count, slot;
    uint64_t generation, digest;
    struct rank ranks[MAX_RANKS];
    struct link *links[MAX_RANKS];
    struct registration **bound;
    size_t bound_count;
    bool root, prepared, preparing, condemned, half_closed, nic_closed, up_again;
    int in_flight;
    void *stream; /* of the batches in flight */
    int async_error;
    struct work *unrung; /* posted batches whose bell was never rung; a later batch releases them */
};

struct communicator *comm_find(HcclComm comm, int *code);
struct communicator *comm_new(const char *name, const struct rank *ranks, uint32_t count, uint32_t rank, int *code);
void comm_meeting(const struct communicator *comm, uint32_t peer, struct meeting *meeting);
bool comm_bound(const struct communicator *comm, uintptr_t start, uint64_t size);
int comm_meet(struct communicator *comm, uint32_t peer, int64_t deadline, bool exporting);
bool comm_bind(struct communicator *comm, struct registration *registration);
void comm_unbind(struct communicator *comm, struct registration *registration);
const char *communicator_name(const HcclCommConfig *config, int *code);

int hccl_begin(enum symbol symbol, enum needs needs);
int hccl_end(int code);
int64_t model_ns(uint64_t bytes, bool base); /* of one descriptor, or the base of a batch; 0: no model is set */
int64_t residual_ms(void);
int64_t environment_number(const char *name, int64_t otherwise);

#endif
