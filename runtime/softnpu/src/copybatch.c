/* Batches of copies: one direction per call, no order among the elements; the first bad element is reported. */
#include <stdlib.h>
#include <string.h>

#include "npu.h"

struct pair { struct stretch to, from; };

/* One task for the whole batch. */
struct batch { struct task task; size_t count; struct pair *pairs; };

struct arguments {
    void **dsts, **srcs;
    size_t *limits, *sizes, count;
    aclrtMemcpyBatchAttr *attrs;
    size_t *indexes, attr_count, *fail;
};

static bool supported(void)
{
    return strstr(settings.soc, "910B") != NULL || strstr(settings.soc, "910_93") != NULL || strstr(settings.soc, "950") != NULL;
}

static int check_attributes(const struct arguments *a)
{
    if (a->attr_count == 0 || a->attr_count > a->count || a->indexes[0] != 0)
        return call_fail(ACL_RT_PARAM_INVALID, "%zu attributes for %zu copies, or the first is not for the first copy",
                         a->attr_count, a->count);
    for (size_t i = 0; i < a->attr_count; i++) {
        int to = a->attrs[i].dstLoc.type, from = a->attrs[i].srcLoc.type;
        if (i > 0 && (a->indexes[i] <= a->indexes[i - 1] || a->indexes[i] >= a->count))
            return call_fail(ACL_RT_PARAM_INVALID, "attribute %zu: the indexes must rise and stay below the count", i);
        if (to + from != LOCATION_HOST + LOCATION_DEVICE || to < 0 || from < 0)
            return call_fail(ACL_RT_PARAM_INVALID, "attribute %zu: from location %d to %d is no way between host and device", i, from, to);
        if (to != a->attrs[0].dstLoc.type)
            return call_fail(ACL_RT_PARAM_INVALID, "attribute %zu: one call goes in one direction", i);
    }
    return 0;
}

static int check_call(const struct arguments *a)
{
    if (!supported())
        return call_fail(ACL_RT_FEATURE_NOT_SUPPORT, "batches of copies are not supported on %s", settings.soc);
    if (a->fail == NULL)
        return ACL_INVALID_PARAM;
    *a->fail = SIZE_MAX;
    if (a->dsts == NULL || a->srcs == NULL || a->limits == NULL || a->sizes == NULL || a->attrs == NULL || a->indexes == NULL)
        return ACL_INVALID_PARAM;
    if (a->count == 0)
        return ACL_RT_PARAM_INVALID;
    return check_attributes(a);
}

/* The device that an address lies on must be the one that the attribute names. */
static int check_location(const struct stretch *stretch, uint32_t device)
{
    blocks_read();
    const struct block *block = block_at(stretch->address);
    bool there = block != NULL && block->device == (int)device;
    blocks_unlock();
    return there ? 0 : call_fail(ACL_RT_PARAM_INVALID, "an address is not on device %u", device);
}

static int check_element(const struct arguments *a, size_t i, const aclrtMemcpyBatchAttr *attr, struct pair *pair)
{
    bool down = attr->dstLoc.type == LOCATION_DEVICE;
    if (a->dsts[i] == NULL || a->srcs[i] == NULL)
        return ACL_INVALID_PARAM;
    if (a->sizes[i] == 0 || a->sizes[i] > a->limits[i])
        return call_fail(ACL_RT_PARAM_INVALID, "copy %zu: %zu bytes into a place of %zu", i, a->sizes[i], a->limits[i]);
    int code = stretch_make(&pair->to, a->dsts[i], a->sizes[i], down ? SIDE_DEVICE : SIDE_HOST, "destination");
    if (code == 0)
        code = stretch_make(&pair->from, a->srcs[i], a->sizes[i], down ? SIDE_HOST : SIDE_DEVICE, "source");
    if (code == 0)
        code = down ? check_location(&pair->to, attr->dstLoc.id) : check_location(&pair->from, attr->srcLoc.id);
    return code;
}

static void shuffle(struct pair *pairs, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t other = random_below(i);
        struct pair kept = pairs[i - 1];
        pairs[i - 1] = pairs[other];
        pairs[other] = kept;
    }
}

static int run(struct task *task)
{
    struct batch *batch = (struct batch *)task;
    int code = 0;
    for (size_t i = 0; i < batch->count && code == 0; i++)
        code = move_stretch(task, &batch->pairs[i].to, &batch->pairs[i].from);
    return code;
}

static void hold(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        stretch_hold(&batch->pairs[i].to);
        stretch_hold(&batch->pairs[i].from);
    }
}

static void end(struct task *task, int code)
{
    struct batch *batch = (struct batch *)task;
    (void)code;
    for (size_t i = 0; i < batch->count; i++) {
        stretch_release(&batch->pairs[i].to);
        stretch_release(&batch->pairs[i].from);
    }
    free(batch->pairs);
    free(batch);
}

static bool pinned(const struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (!stretch_pinned(&batch->pairs[i].to) || !stretch_pinned(&batch->pairs[i].from))
            return false;
    return true;
}

/* Checks the elements in order. The first bad one is reported, and none is moved. */
static int check_elements(const struct arguments *a, struct batch *batch)
{
    batch->pairs = calloc(a->count, sizeof *batch->pairs);
    if (batch->pairs == NULL)
        return ACL_BAD_ALLOC;
    for (size_t i = 0, attr = 0; i < a->count; i++) {
        if (attr + 1 < a->attr_count && a->indexes[attr + 1] == i)
            attr++;
        int code = check_element(a, i, &a->attrs[attr], &batch->pairs[i]);
        if (code != 0) {
            *a->fail = i;
            return code;
        }
    }
    batch->count = a->count;
    shuffle(batch->pairs, batch->count);
    hold(batch);
    return 0;
}

static int submit(struct batch *batch, struct stream *stream, bool wait)
{
    struct mark *mark = wait ? mark_new(stream->handle) : NULL;
    if (mark != NULL)
        mark->references++;
    batch->task.mark = mark;
    int code = stream_submit(stream, &batch->task);
    if (code == 0 && mark != NULL)
        code = mark_wait(mark, FOREVER, 0);
    mark_drop(mark);
    return code;
}

static int begin(const struct arguments *a, struct batch **batch)
{
    *batch = NULL;
    int code = check_call(a);
    if (code != 0)
        return code;
    struct task *task = task_new(sizeof **batch, TASK_COPY);
    if (task == NULL)
        return ACL_BAD_ALLOC;
    task->run = run;
    task->end = end;
    *batch = (struct batch *)task;
    code = check_elements(a, *batch);
    if (code != 0)
        task_finish(task, code);
    return code;
}

aclError aclrtMemcpyBatch(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes, size_t numBatches,
                          aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes, size_t numAttrs, size_t *failIndex)
{
    struct arguments a = {dsts, srcs, destMaxs, sizes, numBatches, attrs, attrsIndexes, numAttrs, failIndex};
    struct batch *batch;
    int code = call_begin(SYM_aclrtMemcpyBatch, NEEDS_CONTEXT);
    if (code == 0 && (code = begin(&a, &batch)) == 0) {
        pthread_mutex_unlock(&npu_lock);
        for (size_t i = 0; i < batch->count && code == 0; i++)
            code = move_stretch(NULL, &batch->pairs[i].to, &batch->pairs[i].from);
        pthread_mutex_lock(&npu_lock);
        task_finish(&batch->task, code);
    }
    return call_end(code);
}

aclError aclrtMemcpyBatchAsync(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes, size_t numBatches,
                               aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes, size_t numAttrs, size_t *failIndex,
                               aclrtStream s)
{
    struct arguments a = {dsts, srcs, destMaxs, sizes, numBatches, attrs, attrsIndexes, numAttrs, failIndex};
    struct batch *batch;
    int code = call_begin(SYM_aclrtMemcpyBatchAsync, NEEDS_CONTEXT);
    struct stream *stream = code == 0 ? stream_of(s, &code) : NULL;
    if (code == 0 && (code = begin(&a, &batch)) == 0)
        code = submit(batch, stream, !pinned(batch));
    return call_end(code);
}
