/* Streams: a queue in strict order, and a thread that runs its tasks. */
#include <signal.h>
#include <stdlib.h>

#include "npu.h"

#define STACK (1 * MIB)

static int next_id;

struct stream *stream_new(struct context *context)
{
    struct stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    stream->handle = handle_new(OBJECT_STREAM, stream);
    if (stream->handle == NULL) {
        free(stream);
        return NULL;
    }
    stream->context = context->handle;
    stream->device = context->device;
    stream->id = next_id++;
    stream->tail = &stream->head;
    condition_init(&stream->work);
    devices[stream->device].streams++;
    return stream;
}

static void stream_free(struct stream *stream)
{
    pthread_cond_destroy(&stream->work);
    free(stream);
}

void stream_drop(struct stream *stream, int code)
{
    struct task *task = stream->head;
    stream->head = NULL;
    stream->tail = &stream->head;
    while (task != NULL) {
        struct task *next = task->next;
        stream->finished++;
        task_finish(task, code);
        task = next;
    }
}

void stream_destroy(struct stream *stream)
{
    handle_remove(stream->handle);
    devices[stream->device].streams--;
    stream_drop(stream, ACL_RT_STREAM_ABORT);
    stream->dying = true;
    if (stream->running != NULL)
        task_cancel(stream->running);
    pthread_cond_broadcast(&stream->work);
    pthread_cond_broadcast(&npu_changed);
    if (!stream->started) /* otherwise its thread frees it */
        stream_free(stream);
}

/* A failure stays with the stream; under STOP_ON_FAILURE every stream of the context stops with it. */
static void stream_failed(struct stream *stream, int code)
{
    struct stream *other;
    struct context *context = handle_find(OBJECT_CONTEXT, stream->context);
    if (stream->error == 0)
        stream->error = code;
    if (stream->failure_mode != STOP_ON_FAILURE || context == NULL)
        return;
    context->failed = code;
    for (size_t cursor = 0; (other = handle_next(OBJECT_STREAM, &cursor)) != NULL;)
        if (other->context == stream->context)
            stream_drop(other, code);
}

static void work_off(struct stream *stream)
{
    struct task *task = stream->head;
    stream->head = task->next;
    if (stream->head == NULL)
        stream->tail = &stream->head;
    task->next = NULL;
    stream->running = task;
    pthread_mutex_unlock(&npu_lock);
    int code = task_execute(task);
    pthread_mutex_lock(&npu_lock);
    stream->running = NULL;
    stream->finished++;
    if (code != 0 && code != ACL_RT_STREAM_ABORT)
        stream_failed(stream, code);
    task_finish(task, code);
}

static void *stream_main(void *argument)
{
    struct stream *stream = argument;
    pthread_mutex_lock(&npu_lock);
    while (!stream->dying)
        if (stream->head != NULL)
            work_off(stream);
        else
            condition_wait(&stream->work, FOREVER);
    stream_free(stream);
    pthread_mutex_unlock(&npu_lock);
    return NULL;
}

/* Signals are for the program's threads; those of this library block them. */
bool stream_start(struct stream *stream)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    stream->started = pthread_create(&thread, &attributes, stream_main, stream) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return stream->started;
}

bool stream_busy(const struct stream *stream) { return stream->submitted != stream->finished; }

int stream_failure(const struct stream *stream)
{
    struct context *context = handle_find(OBJECT_CONTEXT, stream->context);
    return context != NULL && context->failed != 0 ? context->failed : stream->error;
}

struct stream *stream_of(void *handle, int *code)
{
    struct stream *stream = handle_find(OBJECT_STREAM, handle != NULL ? handle : context_current()->default_stream);
    *code = 0;
    if (stream == NULL)
        *code = ACL_RT_INVALID_HANDLE;
    else if (stream->context != thread_context)
        *code = call_fail(ACL_RT_STREAM_CONTEXT, "stream %d belongs to another context", stream->id);
    return *code == 0 ? stream : NULL;
}

/* Waits for room, or reports that there is none. The stream may be gone after a wait: then it returns NULL. */
static struct stream *stream_room(struct stream *stream, int *code)
{
    void *handle = stream->handle;
    uint64_t most = (uint64_t)fault_number("limit", "queue", settings.queue);
    while (stream != NULL && stream->submitted - stream->finished >= most) {
        if (settings.queue_full_fails != 0) {
            *code = call_fail(ACL_RT_STREAM_TASK_FULL, "stream %d is full: %llu tasks", stream->id, (unsigned long long)most);
            return NULL;
        }
        condition_wait(&npu_changed, FOREVER);
        stream = handle_find(OBJECT_STREAM, handle);
    }
    *code = stream == NULL ? ACL_RT_INVALID_HANDLE : 0;
    return stream;
}

int stream_submit(struct stream *stream, struct task *task)
{
    int code;
    stream = stream_room(stream, &code);
    if (code == 0) {
        struct context *context = handle_find(OBJECT_CONTEXT, stream->context);
        code = context == NULL ? ACL_RT_INVALID_HANDLE : context->failed;
    }
    if (code == 0 && !stream->started && !stream_start(stream))
        code = call_fail(ACL_RT_NO_STREAM_RESOURCE, "no thread for stream %d", stream->id);
    if (code != 0) {
        task_finish(task, code);
        return code;
    }
    task->stream = stream;
    *stream->tail = task;
    stream->tail = &task->next;
    stream->submitted++;
    pthread_cond_signal(&stream->work);
    return 0;
}

int stream_wait(void *handle, int64_t deadline, int expired)
{
    struct stream *stream = handle_find(OBJECT_STREAM, handle);
    if (stream == NULL)
        return ACL_RT_INVALID_HANDLE;
    uint64_t goal = stream->submitted, aborts = stream->aborts;
    while (stream->finished < goal) {
        bool in_time = condition_wait(&npu_changed, deadline);
        stream = handle_find(OBJECT_STREAM, handle);
        if (stream == NULL)
            return ACL_RT_INVALID_HANDLE;
        if (stream->aborts != aborts)
            return call_fail(ACL_RT_STREAM_ABORT, "stream %d was aborted", stream->id);
        if (!in_time && stream->finished < goal)
            return call_fail(expired, "stream %d: %llu tasks unfinished when the time was over", stream->id,
                             (unsigned long long)(stream->submitted - stream->finished));
    }
    return stream_failure(stream);
}

int stream_abort(struct stream *stream)
{
    void *handle = stream->handle;
    uint64_t goal = stream->submitted;
    stream->aborts++;
    if (stream->running != NULL)
        task_cancel(stream->running);
    stream_drop(stream, ACL_RT_STREAM_ABORT);
    pthread_cond_broadcast(&npu_changed);
    /* The running task has stopped when abort returns. */
    while (stream != NULL && stream->running != NULL && stream->finished < goal) {
        condition_wait(&npu_changed, FOREVER);
        stream = handle_find(OBJECT_STREAM, handle);
    }
    return 0;
}
