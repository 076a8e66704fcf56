/* Declarations that the files of the software NPU share.
 *
 * One lock, npu_lock, guards everything except the table of memory blocks. Copies read that table between pieces, so it
 * has a reader-writer lock of its own (block.c). Order: npu_lock first, then the blocks' lock. A waiting thread gives
 * up npu_lock and keeps only handles meanwhile: after each wake-up it looks its objects up again, so that destroying an
 * object never leaves a waiter with a dangling pointer. */
#ifndef NPU_H
#define NPU_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cann.h"
#include "symbols.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define FOREVER INT64_MAX
#define MAX_DEVICES 16
#define PIECE (4 * KIB) /* how much is moved between two checks of whether it still may be */

/* ---- lock.c: the lock, the clock, chance ---- */

extern pthread_mutex_t npu_lock;
extern pthread_cond_t npu_changed; /* anything a waiter may wait for has changed */

int64_t now_ns(void); /* CLOCK_MONOTONIC */
int64_t after_ms(int64_t ms); /* a deadline; FOREVER when ms is negative */
void condition_init(pthread_cond_t *condition);
bool condition_wait(pthread_cond_t *condition, int64_t deadline); /* false: the deadline has passed */
void random_seed(uint64_t seed);
uint64_t random_below(uint64_t bound); /* 0 when bound is 0; under the lock */
bool random_chance(double p);

/* ---- settings.c: CANNEMU_* of the environment, and "set" at run time ---- */

struct settings {
    int64_t devices, device_memory, host_memory, strict_init, strict_memory, delay_us, queue, queue_full_fails,
        streams, events, descriptors, seed, hccl_generation, hccs_linger_ms, destroy_waits, fill_max, residual_ms,
        exchange_overflows;
    char soc[64], version[32], directory[512], log[512], report[512], model[32], server[65], gone[16];
};
extern struct settings settings;

void settings_load(void); /* once, by the first call; under the lock */
bool settings_set(const char *name, const char *value);

/* ---- handle.c: handles are table indices with a generation, never pointers ---- */

enum object_kind { OBJECT_CONTEXT = 1, OBJECT_STREAM, OBJECT_EVENT, OBJECT_REGISTRATION, OBJECT_COMMUNICATOR, OBJECT_KINDS };

void *handle_new(enum object_kind kind, void *object); /* NULL: the table is full */
void *handle_find(enum object_kind kind, const void *handle); /* NULL: destroyed, of another kind, or nonsense */
void handle_remove(const void *handle);
/* Iterates over the objects of a kind: start with *cursor = 0; returns NULL after the last. */
void *handle_next(enum object_kind kind, size_t *cursor);

/* ---- call.c: how every exported function begins and ends ---- */

enum needs { NEEDS_NOTHING, NEEDS_INIT, NEEDS_CONTEXT };

/* Takes the lock, counts the call, applies fault rules and checks what the call needs. */
int call_begin(enum symbol symbol, enum needs needs);
int call_end(int code); /* notes the failure for this thread and gives the lock back */
__attribute__((format(printf, 2, 3))) int call_fail(int code, const char *format, ...); /* sets this thread's text */
const char *acl_name(int code);
const char *symbol_name(enum symbol symbol);
const char *thread_take_text(void);
int thread_last_error(bool clear);

extern __thread void *thread_context; /* the calling thread's current context */

/* ---- lifecycle.c ---- */

bool acl_initialised(void);
int default_device(void); /* that of aclInit's file, or -1 */

/* ---- device.c ---- */

struct arena;
struct device {
    int references; /* of the primary context, by aclrtSetDevice */
    void *primary;
    int streams, events;
    struct arena *memory; /* made by the first allocation */
};
extern struct device devices[MAX_DEVICES];

bool device_valid(int64_t device);
int device_count(void);
int device_physical(int device);
bool device_lost(int device); /* a fault rule says so */
bool device_idle(int device); /* no stream of the device has work */
int device_wait_idle(int device, int64_t deadline);

/* ---- context.c ---- */

struct context {
    void *handle, *default_stream;
    int device;
    bool primary;
    int failed; /* what a stream under STOP_ON_FAILURE failed with; all streams of the context stop */
};

struct context *context_current(void); /* NULL: none, or destroyed */
int context_use_device(int device);

/* ---- task.c, stream.c ---- */

struct stream;
enum task_sort { TASK_OTHER, TASK_COPY, TASK_BATCH };

/* The position of a stream when an event was recorded. It outlives both; counted under the lock. */
struct mark {
    int references, code;
    bool done;
    int64_t when;
    void *stream;
};

/* What a fault rule does to one task. */
struct task_fault { int64_t delay_us; bool hang; int code; uint64_t bytes; const char *rule; };

struct task {
    struct task *next;
    struct stream *stream;
    enum task_sort sort;
    int (*run)(struct task *); /* on the stream's thread, without the lock */
    void (*end)(struct task *, int code); /* once, under the lock, run or dropped (then ACL_RT_STREAM_ABORT or the failure); frees it */
    bool cancelled; /* atomic: read without the lock between pieces */
    struct task_fault fault;
    uint64_t moved; /* bytes so far */
    struct mark *mark; /* set when the task ends; may be NULL */
};

struct stream {
    void *handle, *context;
    int id, device;
    pthread_cond_t work;
    struct task *head, **tail, *running;
    uint64_t submitted, finished; /* tasks; dropped ones are finished too */
    bool started, dying;
    int error; /* of the first task that failed; it stays */
    uint64_t failure_mode;
    bool failure_mode_set;
    uint64_t aborts;
};

struct stream *stream_new(struct context *context); /* NULL: no memory or no handle */
void stream_destroy(struct stream *stream); /* drops what has not started and does not wait */
struct stream *stream_of(void *handle, int *code); /* of the current context; NULL is its default stream */
bool stream_busy(const struct stream *stream);
int stream_submit(struct stream *stream, struct task *task); /* owns the task, also when it fails */
int stream_wait(void *handle, int64_t deadline, int expired);
int stream_abort(struct stream *stream);
int stream_failure(const struct stream *stream);
bool stream_start(struct stream *stream); /* its thread */
void stream_drop(struct stream *stream, int code); /* what has not started */

struct task *task_new(size_t size, enum task_sort sort); /* NULL: no memory */
void task_finish(struct task *task, int code); /* under the lock; frees it */
int task_execute(struct task *task); /* its run, and what fault rules make of it; without the lock */
void task_cancel(struct task *task);
void tasks_release(void); /* lets tasks continue that hang because of a fault rule */
bool task_cancelled(struct task *task);
bool task_pause(struct task *task, int64_t until); /* false: cancelled meanwhile */
bool task_may_move(struct task *task, uint64_t *bytes); /* false: cut off by a fault; else bytes may have become less */
struct mark *mark_new(void *stream);
void mark_drop(struct mark *mark);
int mark_wait(struct mark *mark, int64_t deadline, int expired);

/* ---- event.c ---- */

struct event { void *handle, *context; int device; bool ex; uint32_t flags; struct mark *mark; };

void event_destroy(struct event *event);

/* ---- arena.c, block.c: memory with a file behind it, and the table of all that was allocated ---- */

struct arena {
    int fd, device; /* -1: host memory */
    size_t length, quota, used, high, cursor;
    uintptr_t visible; /* the addresses that the program sees */
    unsigned char *inner; /* the same memory, as the software NPU reaches it */
};

enum block_kind { BLOCK_DEVICE, BLOCK_HOST, BLOCK_REGISTERED, BLOCK_IMPORTED };

struct block {
    uintptr_t start;
    size_t size, span;
    enum block_kind kind;
    int device;
    void *context;
    struct arena *arena; /* NULL: registered memory of the program's own, or another process's */
    uint64_t serial;
    int users; /* tasks that will touch it; atomic */
    uint32_t page;
    unsigned char *inner;
};

/* Whether it is memory of a device, of this process or another. */
static inline bool block_on_device(const struct block *block) { return block->kind == BLOCK_DEVICE || block->kind == BLOCK_IMPORTED; }

extern struct arena *host_arena;

struct arena *arena_new(int device, size_t quota);
bool arena_take(struct arena *arena, struct block *block, size_t align); /* false: no room; under the write lock */
void arena_give(struct block *block);

void blocks_read(void);
void blocks_write(void);
void blocks_unlock(void);
bool block_insert(struct block *block);
struct block *block_remove(uintptr_t start, enum block_kind kind);
struct block *block_at(uintptr_t address); /* the block that holds the address */
struct block *block_from(uintptr_t address); /* the first block that ends behind the address */
struct block *block_next(size_t *cursor);
size_t block_gap(struct arena *arena, size_t from, size_t span, size_t align); /* offset, or SIZE_MAX */
void blocks_of_context_free(void *context);

/* A range of memory that a task will touch: checked once when the task is made, and again before each piece. */
struct stretch { uintptr_t address; size_t length; uint64_t serial; /* 0: pageable host memory */ bool device; };

enum side { SIDE_HOST, SIDE_DEVICE, SIDE_ANY };
int stretch_make(struct stretch *stretch, const void *address, size_t length, enum side side, const char *what);
bool stretch_pinned(const struct stretch *stretch);
void stretch_hold(const struct stretch *stretch);
void stretch_release(const struct stretch *stretch);
unsigned char *stretch_inner(const struct stretch *stretch, size_t offset, size_t length); /* under blocks_read; NULL: freed */

/* ---- ipc.c ---- */

bool ipc_address(uintptr_t address); /* whether something is or was imported there */
bool ipc_exported(uintptr_t start, size_t size);

/* ---- move.c: bytes, in pieces ---- */

void bytes_copy(unsigned char *to, const unsigned char *from, size_t n);
void bytes_fill(unsigned char *to, unsigned char value, size_t n);
int move_stretch(struct task *task, const struct stretch *to, const struct stretch *from); /* task may be NULL */
int fill_stretch(struct task *task, const struct stretch *to, unsigned char value);
void memory_written(uintptr_t address, size_t length); /* reports a write into a watched range */

/* ---- fault.c, rule.c ---- */

struct rule; /* target:key=value,... */
bool faults_add(const char *text, char *problem, size_t size); /* all rules or none */
void faults_clear(void);
int fault_call(enum symbol symbol, int64_t *block_ms, const char **text); /* code, or 0 */
int fault_oom(int device, size_t used, size_t more); /* device -1: host memory */
void fault_task(enum task_sort sort, struct task_fault *fault);
int64_t fault_number(const char *target, const char *key, int64_t otherwise);
const struct rule *fault_rule(const char *target, const struct rule *after); /* NULL: no more */
const char *rule_value(const struct rule *rule, const char *key); /* NULL: not there */
int64_t rule_number(const struct rule *rule, const char *key, int64_t otherwise);
const char *rule_text(const struct rule *rule);
bool rule_hit(struct rule *rule, const char *key); /* counts one, and reports whether the key's n is this one */
uint64_t rule_seen(struct rule *rule); /* counts one more, and says how many there were */
uint64_t rule_hits(const struct rule *rule); /* how often it was noted */
uint64_t rule_add(struct rule *rule, uint64_t more); /* adds to the rule's sum, and says what it is */
void rule_note(struct rule *rule, const char *what); /* into the log and the counters */
void faults_report(FILE *out);

/* ---- report.c, control.c ---- */

extern uint64_t call_counts[SYMBOL_COUNT];

__attribute__((format(printf, 1, 2))) void violation(const char *format, ...);
__attribute__((format(printf, 1, 2))) void note(const char *format, ...); /* into the log */
void report_open(void);
/* counts live objects by name, in a file that outlives this process */
void report_live(const char *name, int64_t change);
void report_count(const char *name, uint64_t more);
void report_high(const char *name, uint64_t value);
void report_stats(FILE *out);
void report_violations(FILE *out);
void report_log(FILE *out);
size_t report_leaks(FILE *out);
void report_forget(void);

#endif
