/* Copies and fills, blocking and on streams, by the vendor's rules. */
#include <stdlib.h>

#include "npu.h"

#define NOTHING_TO_DO (-1)

struct copy { struct task task; struct stretch to, from; int value; /* -1: a copy; else what to fill with */ };

static int sides(int kind, enum side *to, enum side *from)
{
    switch (kind) {
    case MEMCPY_HOST_TO_HOST: *to = SIDE_HOST, *from = SIDE_HOST; return 0;
    case MEMCPY_HOST_TO_DEVICE:
    case MEMCPY_HOST_TO_BUF_TO_DEVICE: *to = SIDE_DEVICE, *from = SIDE_HOST; return 0;
    case MEMCPY_DEVICE_TO_HOST: *to = SIDE_HOST, *from = SIDE_DEVICE; return 0;
    case MEMCPY_DEVICE_TO_DEVICE: *to = SIDE_DEVICE, *from = SIDE_DEVICE; return 0;
    case MEMCPY_DEFAULT: *to = SIDE_ANY, *from = SIDE_ANY; return 0;
    }
    return call_fail(ACL_INVALID_PARAM, "a copy of kind %d is refused", kind);
}

static int check_sizes(const void *p, size_t most, size_t count)
{
    if (count == 0)
        return NOTHING_TO_DO;
    if (p == NULL)
        return ACL_INVALID_PARAM;
    if (most == 0 || count > most)
        return call_fail(ACL_RT_PARAM_INVALID, "%zu bytes into a place of %zu", count, most);
    return 0;
}

static int check_copy(struct copy *copy, void *dst, size_t most, const void *src, size_t count, int kind)
{
    enum side to = SIDE_ANY, from = SIDE_ANY;
    int code = check_sizes(dst, most, count);
    if (code != 0)
        return code;
    if (src == NULL)
        return ACL_INVALID_PARAM;
    if (dst == src)
        return NOTHING_TO_DO;
    if ((code = sides(kind, &to, &from)) != 0)
        return code;
    code = stretch_make(&copy->to, dst, count, to, "destination");
    return code != 0 ? code : stretch_make(&copy->from, src, count, from, "source");
}

static int move(struct task *task, const struct copy *copy)
{
    if (copy->value >= 0)
        return fill_stretch(task, &copy->to, (unsigned char)copy->value);
    return move_stretch(task, &copy->to, &copy->from);
}

static void hold(const struct copy *copy)
{
    stretch_hold(&copy->to);
    stretch_hold(&copy->from);
}

static void release(const struct copy *copy)
{
    stretch_release(&copy->to);
    stretch_release(&copy->from);
}

/* On the calling thread, without the lock, so that other threads continue meanwhile. */
static int move_now(const struct copy *copy)
{
    hold(copy);
    pthread_mutex_unlock(&npu_lock);
    int code = move(NULL, copy);
    pthread_mutex_lock(&npu_lock);
    release(copy);
    return code;
}

static int run(struct task *task) { return move(task, (struct copy *)task); }

static void end(struct task *task, int code)
{
    (void)code;
    release((struct copy *)task);
    free(task);
}

/* Pageable memory may change as soon as the call returns, so the call returns only when it is not needed any more. */
static int submit_and_wait(struct stream *stream, struct task *task)
{
    struct mark *mark = mark_new(stream->handle);
    if (mark == NULL) {
        task_finish(task, ACL_BAD_ALLOC);
        return ACL_BAD_ALLOC;
    }
    mark->references++;
    task->mark = mark;
    int code = stream_submit(stream, task);
    if (code == 0)
        code = mark_wait(mark, FOREVER, 0);
    mark_drop(mark);
    return code;
}

static int submit(const struct copy *copy, aclrtStream s)
{
    int code;
    struct stream *stream = stream_of(s, &code);
    if (code != 0)
        return code;
    struct task *task = task_new(sizeof *copy, TASK_COPY);
    if (task == NULL)
        return ACL_BAD_ALLOC;
    struct copy *made = (struct copy *)task;
    made->to = copy->to;
    made->from = copy->from;
    made->value = copy->value;
    task->run = run;
    task->end = end;
    hold(made);
    bool pageable = !stretch_pinned(&copy->to) || (copy->value < 0 && !stretch_pinned(&copy->from));
    return pageable ? submit_and_wait(stream, task) : stream_submit(stream, task);
}

aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, int kind)
{
    struct copy copy = {.value = -1};
    int code = call_begin(SYM_aclrtMemcpy, NEEDS_CONTEXT);
    if (code == 0)
        code = check_copy(&copy, dst, destMax, src, count, kind);
    if (code == 0)
        code = move_now(&copy);
    return call_end(code == NOTHING_TO_DO ? 0 : code);
}

aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, int kind, aclrtStream s)
{
    struct copy copy = {.value = -1};
    int code = call_begin(SYM_aclrtMemcpyAsync, NEEDS_CONTEXT);
    if (code == 0)
        code = check_copy(&copy, dst, destMax, src, count, kind);
    if (code == 0 && !copy.to.device && !copy.from.device)
        code = call_fail(ACL_RT_FEATURE_NOT_SUPPORT, "aclrtMemcpyAsync from host to host is not supported");
    if (code == 0)
        code = submit(&copy, s);
    return call_end(code == NOTHING_TO_DO ? 0 : code);
}

static int check_fill(struct copy *copy, void *p, size_t most, int32_t value, size_t count)
{
    int code = check_sizes(p, most, count);
    copy->value = (unsigned char)value;
    return code != 0 ? code : stretch_make(&copy->to, p, count, SIDE_ANY, "destination");
}

aclError aclrtMemset(void *p, size_t maxCount, int32_t value, size_t count)
{
    struct copy fill = {0};
    int code = call_begin(SYM_aclrtMemset, NEEDS_CONTEXT);
    if (code == 0)
        code = check_fill(&fill, p, maxCount, value, count);
    if (code == 0)
        code = move_now(&fill);
    return call_end(code == NOTHING_TO_DO ? 0 : code);
}

aclError aclrtMemsetAsync(void *p, size_t maxCount, int32_t value, size_t count, aclrtStream s)
{
    struct copy fill = {0};
    int code = call_begin(SYM_aclrtMemsetAsync, NEEDS_CONTEXT);
    if (code == 0)
        code = check_fill(&fill, p, maxCount, value, count);
    if (code == 0)
        code = submit(&fill, s);
    return call_end(code == NOTHING_TO_DO ? 0 : code);
}
