/* Contexts: one primary context for each device, counted by aclrtSetDevice, and explicit ones. The current context is a
 * property of the operating-system thread. */
#include <stdlib.h>

#include "npu.h"

struct context *context_current(void) { return handle_find(OBJECT_CONTEXT, thread_context); }

static struct context *context_new(int device, bool primary)
{
    struct context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return NULL;
    context->device = device;
    context->primary = primary;
    context->handle = handle_new(OBJECT_CONTEXT, context);
    if (context->handle == NULL) {
        free(context);
        return NULL;
    }
    struct stream *stream = stream_new(context);
    if (stream != NULL) {
        context->default_stream = stream->handle;
        return context;
    }
    handle_remove(context->handle);
    free(context);
    return NULL;
}

static void context_destroy(struct context *context)
{
    struct stream *stream;
    struct event *event;
    for (size_t cursor = 0; (stream = handle_next(OBJECT_STREAM, &cursor)) != NULL;)
        if (stream->context == context->handle)
            stream_destroy(stream);
    for (size_t cursor = 0; (event = handle_next(OBJECT_EVENT, &cursor)) != NULL;)
        if (event->context == context->handle)
            event_destroy(event);
    if (context->primary)
        blocks_of_context_free(context->handle);
    handle_remove(context->handle);
    if (thread_context == context->handle)
        thread_context = NULL;
    free(context);
    pthread_cond_broadcast(&npu_changed);
}

int context_use_device(int device)
{
    if (!device_valid(device))
        return call_fail(ACL_RT_INVALID_DEVICEID, "aclrtSetDevice: there is no device %d; there are %d", device, device_count());
    if (device_lost(device))
        return call_fail(ACL_RT_LOST_HEARTBEAT, "aclrtSetDevice: device %d is lost", device);
    struct device *d = &devices[device];
    if (d->primary == NULL) {
        struct context *context = context_new(device, true);
        if (context == NULL)
            return ACL_BAD_ALLOC;
        d->primary = context->handle;
    }
    d->references++;
    thread_context = d->primary;
    return 0;
}

aclError aclrtSetDevice(int32_t dev)
{
    int code = call_begin(SYM_aclrtSetDevice, NEEDS_INIT);
    return call_end(code != 0 ? code : context_use_device(dev));
}

static int reset(int device, bool all)
{
    if (!device_valid(device))
        return ACL_RT_INVALID_DEVICEID;
    struct device *d = &devices[device];
    if (d->references == 0)
        return call_fail(ACL_RT_CONTEXT_NULL, "aclrtResetDevice: device %d is not set", device);
    d->references = all ? 0 : d->references - 1;
    if (d->references > 0)
        return 0;
    struct context *context = handle_find(OBJECT_CONTEXT, d->primary);
    d->primary = NULL;
    if (context != NULL)
        context_destroy(context);
    return 0;
}

aclError aclrtResetDevice(int32_t dev)
{
    int code = call_begin(SYM_aclrtResetDevice, NEEDS_INIT);
    return call_end(code != 0 ? code : reset(dev, false));
}

aclError aclrtResetDeviceForce(int32_t dev)
{
    int code = call_begin(SYM_aclrtResetDeviceForce, NEEDS_INIT);
    return call_end(code != 0 ? code : reset(dev, true));
}

aclError aclrtGetDevice(int32_t *dev)
{
    int code = call_begin(SYM_aclrtGetDevice, NEEDS_CONTEXT);
    if (code == 0 && dev == NULL)
        code = ACL_INVALID_PARAM;
    if (code == 0)
        *dev = context_current()->device;
    return call_end(code);
}

static int create(aclrtContext *ctx, int32_t dev)
{
    if (ctx == NULL)
        return ACL_INVALID_PARAM;
    if (!device_valid(dev))
        return ACL_RT_INVALID_DEVICEID;
    if (device_lost(dev))
        return ACL_RT_LOST_HEARTBEAT;
    struct context *context = context_new(dev, false);
    if (context == NULL)
        return ACL_BAD_ALLOC;
    *ctx = thread_context = context->handle;
    return 0;
}

aclError aclrtCreateContext(aclrtContext *ctx, int32_t dev)
{
    int code = call_begin(SYM_aclrtCreateContext, NEEDS_INIT);
    return call_end(code != 0 ? code : create(ctx, dev));
}

aclError aclrtDestroyContext(aclrtContext ctx)
{
    int code = call_begin(SYM_aclrtDestroyContext, NEEDS_INIT);
    struct context *context = handle_find(OBJECT_CONTEXT, ctx);
    if (code == 0 && ctx == NULL)
        code = ACL_INVALID_PARAM;
    if (code == 0 && context == NULL)
        code = ACL_RT_INVALID_HANDLE;
    if (code == 0 && context->primary)
        code = call_fail(ACL_RT_PARAM_INVALID, "aclrtDestroyContext: a primary context is ended by aclrtResetDevice");
    if (code == 0)
        context_destroy(context);
    return call_end(code);
}

aclError aclrtSetCurrentContext(aclrtContext ctx)
{
    int code = call_begin(SYM_aclrtSetCurrentContext, NEEDS_INIT);
    if (code == 0 && ctx == NULL)
        code = ACL_INVALID_PARAM;
    if (code == 0 && handle_find(OBJECT_CONTEXT, ctx) == NULL)
        code = ACL_RT_INVALID_HANDLE;
    if (code == 0)
        thread_context = ctx;
    return call_end(code);
}

aclError aclrtGetCurrentContext(aclrtContext *ctx)
{
    int code = call_begin(SYM_aclrtGetCurrentContext, NEEDS_CONTEXT);
    if (code == 0 && ctx == NULL)
        code = ACL_INVALID_PARAM;
    if (code == 0)
        *ctx = thread_context;
    return call_end(code);
}

aclError aclrtCtxGetCurrentDefaultStream(aclrtStream *s)
{
    int code = call_begin(SYM_aclrtCtxGetCurrentDefaultStream, NEEDS_CONTEXT);
    if (code == 0 && s == NULL)
        code = ACL_INVALID_PARAM;
    if (code == 0)
        *s = context_current()->default_stream;
    return call_end(code);
}
