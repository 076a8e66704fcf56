/* Events: names for positions in a stream. Recording makes a mark (task.c). Waiting refers to the mark, so that
 * destroying an event or recording it again affects no waiter. */
#include <stdlib.h>

#include "npu.h"

void event_destroy(struct event *event)
{
    handle_remove(event->handle);
    devices[event->device].events--;
    mark_drop(event->mark);
    free(event);
}

static int create(aclrtEvent *e, uint32_t flags, bool ex)
{
    struct context *context = context_current();
    if (e == NULL)
        return ACL_INVALID_PARAM;
    if (devices[context->device].events >= fault_number("limit", "events", settings.events))
        return call_fail(ACL_RT_NO_EVENT_RESOURCE, "device %d has %d events already", context->device,
                         devices[context->device].events);
    struct event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return ACL_BAD_ALLOC;
    event->handle = handle_new(OBJECT_EVENT, event);
    if (event->handle == NULL) {
        free(event);
        return ACL_BAD_ALLOC;
    }
    event->context = context->handle;
    event->device = context->device;
    event->ex = ex;
    event->flags = flags;
    devices[context->device].events++;
    *e = event->handle;
    return 0;
}

aclError aclrtCreateEvent(aclrtEvent *e)
{
    int code = call_begin(SYM_aclrtCreateEvent, NEEDS_CONTEXT);
    return call_end(code != 0 ? code : create(e, EVENT_SYNC | EVENT_TIME_LINE, false));
}

aclError aclrtCreateEventWithFlag(aclrtEvent *e, uint32_t flag)
{
    int code = call_begin(SYM_aclrtCreateEventWithFlag, NEEDS_CONTEXT);
    return call_end(code != 0 ? code : create(e, flag, false));
}

aclError aclrtCreateEventExWithFlag(aclrtEvent *e, uint32_t flag)
{
    int code = call_begin(SYM_aclrtCreateEventExWithFlag, NEEDS_CONTEXT);
    return call_end(code != 0 ? code : create(e, flag, true));
}

static struct event *event_of(aclrtEvent e, bool own_context, int *code)
{
    struct event *event = handle_find(OBJECT_EVENT, e);
    if (e == NULL)
        *code = ACL_INVALID_PARAM;
    else if (event == NULL)
        *code = ACL_RT_INVALID_HANDLE;
    else if (own_context && event->context != thread_context)
        *code = call_fail(ACL_RT_STREAM_CONTEXT, "the event belongs to another context");
    else
        *code = 0;
    return *code == 0 ? event : NULL;
}

aclError aclrtDestroyEvent(aclrtEvent e)
{
    int code = call_begin(SYM_aclrtDestroyEvent, NEEDS_CONTEXT);
    if (code != 0)
        return call_end(code);
    struct event *event = event_of(e, true, &code);
    if (code == 0)
        event_destroy(event);
    return call_end(code);
}

static int record(aclrtEvent e, aclrtStream s)
{
    int code;
    struct event *event = event_of(e, true, &code);
    if (code != 0)
        return code;
    struct stream *stream = stream_of(s, &code);
    if (code != 0)
        return code;
    if (!event->ex && event->mark != NULL)
        violation("an old style event was recorded again without aclrtResetEvent");
    struct mark *mark = mark_new(stream->handle);
    struct task *task = task_new(sizeof *task, TASK_OTHER);
    if (mark == NULL || task == NULL) {
        free(mark);
        free(task);
        return ACL_BAD_ALLOC;
    }
    mark_drop(event->mark);
    event->mark = mark;
    mark->references++;
    task->mark = mark;
    return stream_submit(stream, task);
}

aclError aclrtRecordEvent(aclrtEvent e, aclrtStream s)
{
    int code = call_begin(SYM_aclrtRecordEvent, NEEDS_CONTEXT);
    return call_end(code != 0 ? code : record(e, s));
}

aclError aclrtResetEvent(aclrtEvent e, aclrtStream s)
{
    int code = call_begin(SYM_aclrtResetEvent, NEEDS_CONTEXT);
    if (code != 0)
        return call_end(code);
    struct event *event = event_of(e, true, &code);
    if (code == 0)
        stream_of(s, &code);
    if (code == 0) {
        mark_drop(event->mark);
        event->mark = NULL;
    }
    return call_end(code);
}

/* Whether the event has happened. An event of the newer style that was never recorded counts as complete, an old one
 * does not. A record that was dropped by an abort never happens; one that was dropped by a failure returns that
 * failure. */
static bool recorded(const struct event *event, int *code)
{
    *code = 0;
    if (event->mark == NULL)
        return event->ex;
    if (event->mark->done && event->mark->code != ACL_RT_STREAM_ABORT)
        *code = event->mark->code;
    return event->mark->done && event->mark->code == 0;
}

aclError aclrtQueryEventStatus(aclrtEvent e, int *status)
{
    int code = call_begin(SYM_aclrtQueryEventStatus, NEEDS_INIT);
    if (code == 0 && status == NULL)
        code = ACL_INVALID_PARAM;
    if (code != 0)
        return call_end(code);
    struct event *event = event_of(e, false, &code);
    if (code == 0)
        *status = recorded(event, &code) ? RECORDED_COMPLETE : RECORDED_NOT_READY;
    return call_end(code);
}

aclError aclrtQueryEventWaitStatus(aclrtEvent e, int *status)
{
    int code = call_begin(SYM_aclrtQueryEventWaitStatus, NEEDS_INIT);
    if (code == 0 && status == NULL)
        code = ACL_INVALID_PARAM;
    if (code != 0)
        return call_end(code);
    struct event *event = event_of(e, false, &code);
    if (code == 0)
        *status = event->mark == NULL || recorded(event, &code) ? WAIT_COMPLETE : WAIT_NOT_READY;
    return call_end(code);
}

static int synchronise(aclrtEvent e, int32_t ms)
{
    int code;
    if (ms == 0 || ms < -1)
        return call_fail(ACL_RT_PARAM_INVALID, "a timeout is -1 or positive, not %d ms", ms);
    struct event *event = event_of(e, false, &code);
    if (code != 0 || event->mark == NULL)
        return code;
    return mark_wait(event->mark, after_ms(ms), ACL_RT_EVENT_SYNC_TIMEOUT);
}

aclError aclrtSynchronizeEvent(aclrtEvent e)
{
    int code = call_begin(SYM_aclrtSynchronizeEvent, NEEDS_INIT);
    return call_end(code != 0 ? code : synchronise(e, -1));
}

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent e, int32_t ms)
{
    int code = call_begin(SYM_aclrtSynchronizeEventWithTimeout, NEEDS_INIT);
    return call_end(code != 0 ? code : synchronise(e, ms));
}

aclError aclrtEventElapsedTime(float *ms, aclrtEvent a, aclrtEvent b)
{
    int code = call_begin(SYM_aclrtEventElapsedTime, NEEDS_CONTEXT), other = 0;
    if (code == 0 && ms == NULL)
        code = ACL_INVALID_PARAM;
    if (code != 0)
        return call_end(code);
    struct event *first = event_of(a, true, &code), *last = event_of(b, true, &other);
    if (code == 0)
        code = other;
    if (code != 0)
        return call_end(code);
    if (!recorded(first, &code) || !recorded(last, &other) || first->mark == NULL || last->mark == NULL ||
        first->mark->stream != last->mark->stream || ((first->flags & last->flags) & EVENT_TIME_LINE) == 0)
        return call_end(call_fail(ACL_RT_PARAM_INVALID, "both events must be for timing and have happened on one stream"));
    *ms = (float)(last->mark->when - first->mark->when) / 1e6f;
    return call_end(0);
}
