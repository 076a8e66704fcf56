/* The exported functions of streams. */
#include "npu.h"

static int create(aclrtStream *s)
{
    if (s == NULL)
        return ACL_INVALID_PARAM;
    struct context *context = context_current();
    if (devices[context->device].streams >= fault_number("limit", "streams", settings.streams))
        return call_fail(ACL_RT_NO_STREAM_RESOURCE, "device %d has %d streams already", context->device,
                         devices[context->device].streams);
    struct stream *stream = stream_new(context);
    if (stream == NULL)
        return ACL_BAD_ALLOC;
    *s = stream->handle;
    return 0;
}

aclError aclrtCreateStream(aclrtStream *s)
{
    int code = call_begin(SYM_aclrtCreateStream, NEEDS_CONTEXT);
    return call_end(code != 0 ? code : create(s));
}

aclError aclrtCreateStreamWithConfig(aclrtStream *s, uint32_t priority, uint32_t flag)
{
    int code = call_begin(SYM_aclrtCreateStreamWithConfig, NEEDS_CONTEXT);
    if (code == 0 && (priority > 7 || flag > 0x3f))
        code = call_fail(ACL_RT_PARAM_INVALID, "aclrtCreateStreamWithConfig: priority %u or flag %#x is not known", priority, flag);
    return call_end(code != 0 ? code : create(s));
}

static int destroy(aclrtStream s, bool wait)
{
    int code;
    if (s == NULL)
        return ACL_INVALID_PARAM;
    struct stream *stream = stream_of(s, &code);
    if (code != 0)
        return code;
    if (s == context_current()->default_stream)
        return call_fail(ACL_RT_PARAM_INVALID, "the default stream is its context's");
    if (wait && stream_wait(s, FOREVER, 0) == ACL_RT_INVALID_HANDLE)
        return ACL_RT_INVALID_HANDLE;
    stream = handle_find(OBJECT_STREAM, s);
    if (stream == NULL)
        return ACL_RT_INVALID_HANDLE;
    stream_destroy(stream);
    return 0;
}

aclError aclrtDestroyStream(aclrtStream s)
{
    int code = call_begin(SYM_aclrtDestroyStream, NEEDS_CONTEXT);
    return call_end(code != 0 ? code : destroy(s, true));
}

aclError aclrtDestroyStreamForce(aclrtStream s)
{
    int code = call_begin(SYM_aclrtDestroyStreamForce, NEEDS_CONTEXT);
    return call_end(code != 0 ? code : destroy(s, false));
}

/* The one allowed use of another context's stream: the vendor's library switches the context and restores it. */
static int synchronise(aclrtStream s, int32_t ms)
{
    if (ms == 0 || ms < -1)
        return call_fail(ACL_RT_PARAM_INVALID, "a timeout is -1 or positive, not %d ms", ms);
    return stream_wait(s != NULL ? s : context_current()->default_stream, after_ms(ms), ACL_RT_STREAM_SYNC_TIMEOUT);
}

aclError aclrtSynchronizeStream(aclrtStream s)
{
    int code = call_begin(SYM_aclrtSynchronizeStream, NEEDS_CONTEXT);
    return call_end(code != 0 ? code : synchronise(s, -1));
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream s, int32_t ms)
{
    int code = call_begin(SYM_aclrtSynchronizeStreamWithTimeout, NEEDS_CONTEXT);
    return call_end(code != 0 ? code : synchronise(s, ms));
}

aclError aclrtStreamQuery(aclrtStream s, int *status)
{
    int code = call_begin(SYM_aclrtStreamQuery, NEEDS_CONTEXT);
    if (code == 0 && status == NULL)
        code = ACL_INVALID_PARAM;
    if (code != 0)
        return call_end(code);
    struct stream *stream = stream_of(s, &code);
    if (code == 0)
        code = stream_failure(stream);
    if (code == 0)
        *status = stream_busy(stream) ? STREAM_NOT_READY : STREAM_COMPLETE;
    return call_end(code);
}

aclError aclrtStreamAbort(aclrtStream s)
{
    int code = call_begin(SYM_aclrtStreamAbort, NEEDS_CONTEXT);
    if (code != 0)
        return call_end(code);
    struct stream *stream = stream_of(s, &code);
    return call_end(code != 0 ? code : stream_abort(stream));
}

aclError aclrtSetStreamFailureMode(aclrtStream s, uint64_t mode)
{
    int code = call_begin(SYM_aclrtSetStreamFailureMode, NEEDS_CONTEXT);
    if (code == 0 && (s == NULL || mode > STOP_ON_FAILURE))
        code = ACL_INVALID_PARAM;
    if (code != 0)
        return call_end(code);
    struct stream *stream = stream_of(s, &code);
    if (code == 0 && stream->failure_mode_set)
        code = call_fail(ACL_RT_PARAM_INVALID, "the failure mode of stream %d was set before; it is set once", stream->id);
    if (code == 0) {
        stream->failure_mode = mode;
        stream->failure_mode_set = true;
    }
    return call_end(code);
}

aclError aclrtStreamGetId(aclrtStream s, int32_t *id)
{
    int code = call_begin(SYM_aclrtStreamGetId, NEEDS_CONTEXT);
    if (code == 0 && id == NULL)
        code = ACL_INVALID_PARAM;
    if (code != 0)
        return call_end(code);
    struct stream *stream = stream_of(s, &code);
    if (code == 0)
        *id = stream->id;
    return call_end(code);
}

aclError aclrtGetStreamAvailableNum(uint32_t *n)
{
    int code = call_begin(SYM_aclrtGetStreamAvailableNum, NEEDS_CONTEXT);
    if (code == 0 && n == NULL)
        code = ACL_INVALID_PARAM;
    if (code == 0) {
        int64_t left = fault_number("limit", "streams", settings.streams) - devices[context_current()->device].streams;
        *n = left < 0 ? 0 : (uint32_t)left;
    }
    return call_end(code);
}
