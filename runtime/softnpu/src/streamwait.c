/* aclrtStreamWaitEvent: a task that blocks its stream until the mark of another stream is reached. */
#include "npu.h"

#include <stdlib.h>

struct wait { struct task task; struct mark *awaited; };

static int run(struct task *task)
{
    struct wait *wait = (struct wait *)task;
    pthread_mutex_lock(&npu_lock);
    while (!wait->awaited->done && !task_cancelled(task))
        condition_wait(&npu_changed, FOREVER);
    /* A record that never happens blocks the waiting stream until that stream is aborted. */
    while (wait->awaited->code == ACL_RT_STREAM_ABORT && !task_cancelled(task))
        condition_wait(&npu_changed, FOREVER);
    int code = task_cancelled(task) ? ACL_RT_STREAM_ABORT : 0;
    pthread_mutex_unlock(&npu_lock);
    return code;
}

static void end(struct task *task, int code)
{
    (void)code;
    mark_drop(((struct wait *)task)->awaited);
    free(task);
}

static int wait_for(aclrtStream s, aclrtEvent e)
{
    int code;
    struct stream *stream = stream_of(s, &code);
    if (code != 0)
        return code;
    struct event *event = handle_find(OBJECT_EVENT, e);
    if (e == NULL)
        return ACL_INVALID_PARAM;
    if (event == NULL)
        return ACL_RT_INVALID_HANDLE;
    if (event->context != thread_context)
        return call_fail(ACL_RT_STREAM_CONTEXT, "the event belongs to another context");
    if (event->ex && (event->flags & EVENT_SYNC) == 0)
        return call_fail(ACL_RT_PARAM_INVALID, "aclrtStreamWaitEvent: the event was created without the SYNC flag");
    if (event->mark == NULL) {
        violation("aclrtStreamWaitEvent on an event that was never recorded: whether hardware would wait for ever is not known");
        return 0;
    }
    struct task *task = task_new(sizeof(struct wait), TASK_OTHER);
    if (task == NULL)
        return ACL_BAD_ALLOC;
    event->mark->references++;
    ((struct wait *)task)->awaited = event->mark;
    task->run = run;
    task->end = end;
    return stream_submit(stream, task);
}

aclError aclrtStreamWaitEvent(aclrtStream s, aclrtEvent e)
{
    int code = call_begin(SYM_aclrtStreamWaitEvent, NEEDS_CONTEXT);
    return call_end(code != 0 ? code : wait_for(s, e));
}
