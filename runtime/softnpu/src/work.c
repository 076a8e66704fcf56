/* The moving of a batch: piece by piece, each only if the peer exists and nothing was revoked. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "hccl.h"

#define MOST_SHUFFLED (1u << 20)

static struct work *in_flight[1024];
static size_t in_flight_count;

struct work *work_new(struct link *link, void *comm, bool put, size_t room)
{
    struct work *work = calloc(1, sizeof *work);
    if (work == NULL)
        return NULL;
    work->elements = calloc(room + 1, sizeof *work->elements);
    if (work->elements == NULL) {
        free(work);
        return NULL;
    }
    work->link = link;
    link->references++;
    work->comm = comm;
    work->put = put;
    return work;
}

void work_free(struct work *work)
{
    link_drop(work->link);
    free(work->elements);
    free(work->order);
    free(work);
}

void work_hold(struct work *work, bool hold)
{
    for (size_t i = 0; i < work->count; i++)
        if (hold)
            stretch_hold(&work->elements[i].here);
        else
            stretch_release(&work->elements[i].here);
}

/* Pieces by number, in random order. */
bool work_shuffle(struct work *work)
{
    for (size_t i = 0; i < work->count; i++)
        work->pieces += (work->elements[i].bytes + PIECE - 1) / PIECE;
    if (work->pieces > MOST_SHUFFLED || (work->order = calloc(work->pieces + 1, sizeof *work->order)) == NULL)
        return false;
    for (size_t i = 0; i < work->pieces; i++) {
        size_t other = random_below(i + 1);
        work->order[i] = work->order[other];
        work->order[other] = i;
    }
    return true;
}

/* The next piece and its place; false after the last. */
static bool next_piece(struct work *work, size_t *element, uint64_t *offset)
{
    if (work->order != NULL) {
        if (work->piece == work->pieces)
            return false;
        size_t number = work->order[work->piece++], in_element;
        for (*element = 0; number >= (in_element = (work->elements[*element].bytes + PIECE - 1) / PIECE); ++*element)
            number -= in_element;
        *offset = number * PIECE;
        return true;
    }
    if (work->element < work->count && work->offset >= work->elements[work->element].bytes) {
        work->element++;
        work->offset = 0;
    }
    if (work->element == work->count)
        return false;
    *element = work->element;
    *offset = work->offset;
    work->offset += PIECE;
    return true;
}

static int move_piece(struct work *work, const struct element *e, uint64_t offset, uint64_t n)
{
    blocks_read();
    unsigned char *local = stretch_inner(&e->here, offset, n);
    int code = local == NULL ? ACL_RT_DEVICE_MEM_ERROR
                             : link_copy(work->link, &e->export, e->remote + offset, local, n, work->put);
    blocks_unlock();
    if (local == NULL)
        violation("use after free: a batch in flight touches local memory at %#lx that was freed", (unsigned long)e->local);
    else if (!work->put)
        memory_written(e->local + offset, n);
    return code;
}

/* Waits as long as a lost peer makes a NIC wait, or returns the error of the stream. */
static int lost(struct work *work, struct task *task)
{
    struct link *link = work->link;
    bool ruled = __atomic_load_n(&link->down, __ATOMIC_ACQUIRE);
    bool hangs = ruled ? link->hangs : strcmp(settings.gone, "error") != 0;
    if (task == NULL || !hangs)
        return ACL_RT_SUSPECT_REMOTE_ERROR;
    task_pause(task, FOREVER);
    return ACL_RT_STREAM_ABORT;
}

/* Whether the peer exists and the memory may still be touched. */
static int check_way(struct work *work, struct task *task, const struct element *e)
{
    struct link *link = work->link;
    if (__atomic_load_n(&link->closed, __ATOMIC_ACQUIRE))
        return ACL_RT_LINK_ERROR;
    if (__atomic_load_n(&link->down, __ATOMIC_ACQUIRE) || link_peer_dead(link))
        return lost(work, task);
    return link_allows(link, &e->export) ? 0 : ACL_RT_SUSPECT_REMOTE_ERROR;
}

int work_move(struct work *work, struct task *task)
{
    size_t element;
    uint64_t offset;
    if (task != NULL && task_cancelled(task))
        return ACL_RT_STREAM_ABORT;
    while (next_piece(work, &element, &offset)) {
        const struct element *e = &work->elements[element];
        uint64_t n = e->bytes - offset < PIECE ? e->bytes - offset : PIECE;
        int code = work->blind ? 0 : check_way(work, task, e);
        if (code != 0)
            return code;
        if (task != NULL && !task_may_move(task, &n))
            return 0; /* the rule that cut it off has the code */
        if (!work->blind && !link_enter(work->link, &e->export))
            return __atomic_load_n(&work->link->closed, __ATOMIC_ACQUIRE) ? ACL_RT_LINK_ERROR : ACL_RT_SUSPECT_REMOTE_ERROR;
        code = move_piece(work, e, offset, n);
        if (!work->blind)
            link_leave(work->link, &e->export);
        if (code != 0)
            return code;
        sched_yield();
        if (task != NULL && task_cancelled(task))
            return ACL_RT_STREAM_ABORT;
    }
    return 0;
}

struct interval { const void *space; uint64_t start, end; };

static int by_start(const void *a, const void *b)
{
    const struct interval *x = a, *y = b;
    if (x->space != y->space)
        return x->space < y->space ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

static size_t intervals_of(const struct work *work, struct interval *into)
{
    for (size_t i = 0; i < work->count; i++) {
        const struct element *e = &work->elements[i];
        uint64_t start = work->put ? e->remote : e->local;
        into[i] = (struct interval){work->put ? work->link : NULL, start, start + e->bytes};
    }
    return work->count;
}

/* Whether the batch writes where another batch in flight, or another of its own elements, writes as well. */
bool work_overlaps(const struct work *work)
{
    size_t room = work->count, count = 0;
    for (size_t i = 0; i < in_flight_count; i++)
        room += in_flight[i]->count;
    struct interval *all = calloc(room + 1, sizeof *all);
    bool found = false;
    if (all == NULL)
        return false;
    count = intervals_of(work, all);
    for (size_t i = 0; i < in_flight_count; i++)
        if (in_flight[i]->put == work->put)
            count += intervals_of(in_flight[i], all + count);
    qsort(all, count, sizeof *all, by_start);
    for (size_t i = 1; i < count && !found; i++)
        found = all[i].space == all[i - 1].space && all[i].start < all[i - 1].end;
    free(all);
    return found;
}

void work_enter(struct work *work)
{
    if (in_flight_count < sizeof in_flight / sizeof *in_flight)
        in_flight[in_flight_count++] = work;
}

void work_leave(struct work *work)
{
    for (size_t i = 0; i < in_flight_count; i++)
        if (in_flight[i] == work) {
            in_flight[i] = in_flight[--in_flight_count];
            return;
        }
}
