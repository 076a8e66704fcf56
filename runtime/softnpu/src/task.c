/* Tasks: one piece of a stream's work, the effect of fault rules on it, and the marks that report its end. */
#include <stdlib.h>

#include "npu.h"

static void end_plain(struct task *task, int code)
{
    (void)code;
    free(task);
}

static int run_nothing(struct task *task)
{
    (void)task;
    return 0;
}

struct task *task_new(size_t size, enum task_sort sort)
{
    struct task *task = calloc(1, size);
    if (task == NULL)
        return NULL;
    task->sort = sort;
    task->run = run_nothing;
    task->end = end_plain;
    task->fault.bytes = UINT64_MAX;
    return task;
}

void task_finish(struct task *task, int code)
{
    if (task->mark != NULL) {
        task->mark->done = true;
        task->mark->code = code;
        task->mark->when = now_ns();
        mark_drop(task->mark);
    }
    task->end(task, code);
    pthread_cond_broadcast(&npu_changed);
}

void task_cancel(struct task *task)
{
    __atomic_store_n(&task->cancelled, true, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&task->stream->work);
    pthread_cond_broadcast(&npu_changed);
}

bool task_cancelled(struct task *task) { return __atomic_load_n(&task->cancelled, __ATOMIC_ACQUIRE); }

bool task_pause(struct task *task, int64_t until)
{
    pthread_mutex_lock(&npu_lock);
    while (!task_cancelled(task) && now_ns() < until)
        condition_wait(&task->stream->work, until);
    bool go_on = !task_cancelled(task);
    pthread_mutex_unlock(&npu_lock);
    return go_on;
}

bool task_may_move(struct task *task, uint64_t *bytes)
{
    uint64_t left = task->fault.bytes - task->moved;
    if (*bytes > left)
        *bytes = left;
    task->moved += *bytes;
    return left > 0;
}

/* Half of the transfers start at once and half a little later, so that a program cannot rely on either order. */
static int64_t start_delay(void)
{
    uint64_t most = (uint64_t)settings.delay_us;
    uint64_t drawn = random_below(2 * most);
    return drawn < most ? (int64_t)drawn * 1000 : 0;
}

static uint64_t releases;

void tasks_release(void)
{
    releases++;
    pthread_cond_broadcast(&npu_changed);
}

/* Hangs until the task is aborted or a test sends release. before is the number of releases when the rule struck. */
static bool hang(struct task *task, uint64_t before)
{
    pthread_mutex_lock(&npu_lock);
    while (!task_cancelled(task) && releases == before)
        condition_wait(&npu_changed, FOREVER);
    pthread_mutex_unlock(&npu_lock);
    return !task_cancelled(task);
}

int task_execute(struct task *task)
{
    int64_t delay = 0;
    uint64_t before = 0;
    if (task->sort != TASK_OTHER) {
        pthread_mutex_lock(&npu_lock);
        delay = start_delay();
        fault_task(task->sort, &task->fault);
        before = releases;
        pthread_mutex_unlock(&npu_lock);
    }
    if (delay > 0 && !task_pause(task, now_ns() + delay))
        return ACL_RT_STREAM_ABORT;
    if (task->fault.hang && !hang(task, before))
        return ACL_RT_STREAM_ABORT;
    int code = task->run(task);
    if (code == 0 && task->fault.delay_us > 0 && !task_pause(task, now_ns() + task->fault.delay_us * 1000))
        code = ACL_RT_STREAM_ABORT;
    return code == 0 ? task->fault.code : code;
}

struct mark *mark_new(void *stream)
{
    struct mark *mark = calloc(1, sizeof *mark);
    if (mark == NULL)
        return NULL;
    mark->references = 1;
    mark->stream = stream;
    return mark;
}

void mark_drop(struct mark *mark)
{
    if (mark != NULL && --mark->references == 0)
        free(mark);
}

int mark_wait(struct mark *mark, int64_t deadline, int expired)
{
    mark->references++;
    int code = 0;
    while (!mark->done && code == 0)
        if (!condition_wait(&npu_changed, deadline) && !mark->done)
            code = expired;
    if (mark->done)
        code = mark->code;
    mark_drop(mark);
    return code;
}
