/* Devices: how many, how they are numbered, what they say about themselves, and when they are idle. */
#include <stdlib.h>
#include <string.h>

#include "npu.h"

struct device devices[MAX_DEVICES];

/* The logical ids that ASCEND_RT_VISIBLE_DEVICES leaves, in its order; without it, all of them. */
static int visible(int logical[MAX_DEVICES])
{
    const char *list = getenv("ASCEND_RT_VISIBLE_DEVICES");
    int count = 0;
    if (list == NULL) {
        for (; count < settings.devices; count++)
            logical[count] = count;
        return count;
    }
    for (char *rest; count < MAX_DEVICES; list = rest + 1) {
        long id = strtol(list, &rest, 10);
        if (rest == list || id < 0 || id >= settings.devices)
            break;
        logical[count++] = (int)id;
        if (*rest != ',')
            break;
    }
    return count;
}

static int logical_of(int user)
{
    int logical[MAX_DEVICES];
    int count = visible(logical);
    return user >= 0 && user < count ? logical[user] : -1;
}

static int user_of(int wanted)
{
    int logical[MAX_DEVICES];
    int count = visible(logical);
    for (int user = 0; user < count; user++)
        if (logical[user] == wanted)
            return user;
    return -1;
}

int device_count(void)
{
    int logical[MAX_DEVICES];
    return visible(logical);
}

bool device_valid(int64_t device) { return device >= 0 && device < device_count(); }
int device_physical(int device) { return logical_of(device); }

aclError aclrtGetDeviceCount(uint32_t *n)
{
    int code = call_begin(SYM_aclrtGetDeviceCount, NEEDS_INIT);
    if (code == 0 && n == NULL)
        code = ACL_INVALID_PARAM;
    if (code == 0)
        *n = (uint32_t)device_count();
    return call_end(code);
}

/* The four translations differ in their tables only; physical ids are the logical ones here. */
static int translate(enum symbol symbol, int from, int32_t *to, int (*table)(int))
{
    int code = call_begin(symbol, NEEDS_INIT);
    if (code == 0 && to == NULL)
        code = ACL_INVALID_PARAM;
    if (code == 0 && table(from) < 0)
        code = call_fail(ACL_RT_INVALID_DEVICEID, "%s: there is no device %d", symbol_name(symbol), from);
    if (code == 0)
        *to = table(from);
    return call_end(code);
}

aclError aclrtGetPhyDevIdByLogicDevId(const int32_t logic, int32_t *const phy)
{
    return translate(SYM_aclrtGetPhyDevIdByLogicDevId, logic, phy, logical_of);
}

aclError aclrtGetLogicDevIdByPhyDevId(const int32_t phy, int32_t *const logic)
{
    return translate(SYM_aclrtGetLogicDevIdByPhyDevId, phy, logic, user_of);
}

aclError aclrtGetLogicDevIdByUserDevId(const int32_t user, int32_t *const logic)
{
    return translate(SYM_aclrtGetLogicDevIdByUserDevId, user, logic, logical_of);
}

aclError aclrtGetUserDevIdByLogicDevId(const int32_t logic, int32_t *const user)
{
    return translate(SYM_aclrtGetUserDevIdByLogicDevId, logic, user, user_of);
}

aclError aclrtGetRunMode(int *mode)
{
    int code = call_begin(SYM_aclrtGetRunMode, NEEDS_INIT);
    if (code == 0 && mode == NULL)
        code = ACL_INVALID_PARAM;
    if (code == 0)
        *mode = RUN_MODE_HOST;
    return call_end(code);
}

bool device_lost(int device)
{
    for (const struct rule *rule = NULL; (rule = fault_rule("device", rule)) != NULL;)
        if (rule_number(rule, "lost", -1) == device)
            return true;
    return false;
}

aclError aclrtQueryDeviceStatus(int32_t dev, int *status)
{
    int code = call_begin(SYM_aclrtQueryDeviceStatus, NEEDS_INIT);
    if (code == 0 && status == NULL)
        code = ACL_INVALID_PARAM;
    if (code == 0 && !device_valid(dev))
        code = ACL_RT_INVALID_DEVICEID;
    if (code == 0)
        *status = device_lost(dev) ? DEVICE_ABNORMAL : DEVICE_NORMAL;
    return call_end(code);
}

aclError aclrtGetDeviceInfo(uint32_t dev, int attr, int64_t *value)
{
    int code = call_begin(SYM_aclrtGetDeviceInfo, NEEDS_INIT);
    if (code == 0 && value == NULL)
        code = ACL_INVALID_PARAM;
    if (code == 0 && !device_valid(dev))
        code = ACL_RT_INVALID_DEVICEID;
    if (code != 0)
        return call_end(code);
    switch (attr) {
    case ATTR_TOTAL_GLOBAL_MEM_SIZE: *value = settings.device_memory; break;
    case ATTR_PHY_CHIP_ID:
    case ATTR_SUPER_POD_DEVICE_ID: *value = device_physical((int)dev); break;
    case ATTR_SUPER_POD_SERVER_ID:
    case ATTR_SUPER_POD_ID: *value = 0; break;
    default: code = call_fail(ACL_RT_PARAM_INVALID, "aclrtGetDeviceInfo: attribute %d is not known", attr);
    }
    return call_end(code);
}

aclError aclrtDeviceCanAccessPeer(int32_t *can, int32_t dev, int32_t peer)
{
    int code = call_begin(SYM_aclrtDeviceCanAccessPeer, NEEDS_INIT);
    if (code == 0 && can == NULL)
        code = ACL_INVALID_PARAM;
    if (code == 0 && (!device_valid(dev) || !device_valid(peer)))
        code = ACL_RT_INVALID_DEVICEID;
    if (code == 0)
        *can = dev != peer;
    return call_end(code);
}

aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags)
{
    int code = call_begin(SYM_aclrtDeviceEnablePeerAccess, NEEDS_CONTEXT);
    if (code == 0 && flags != 0)
        code = ACL_INVALID_PARAM;
    if (code == 0 && !device_valid(peer))
        code = ACL_RT_INVALID_DEVICEID;
    return call_end(code);
}

bool device_idle(int device)
{
    struct stream *stream;
    for (size_t cursor = 0; (stream = handle_next(OBJECT_STREAM, &cursor)) != NULL;)
        if (stream->device == device && stream_busy(stream))
            return false;
    return true;
}

int device_wait_idle(int device, int64_t deadline)
{
    while (!device_idle(device))
        if (!condition_wait(&npu_changed, deadline) && !device_idle(device))
            return ACL_RT_STREAM_SYNC_TIMEOUT;
    struct stream *stream;
    for (size_t cursor = 0; (stream = handle_next(OBJECT_STREAM, &cursor)) != NULL;)
        if (stream->device == device && stream_failure(stream) != 0)
            return stream_failure(stream);
    return 0;
}

aclError aclrtSynchronizeDevice(void)
{
    int code = call_begin(SYM_aclrtSynchronizeDevice, NEEDS_CONTEXT);
    if (code == 0)
        code = device_wait_idle(context_current()->device, FOREVER);
    return call_end(code);
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t ms)
{
    int code = call_begin(SYM_aclrtSynchronizeDeviceWithTimeout, NEEDS_CONTEXT);
    if (code == 0 && (ms == 0 || ms < -1))
        code = call_fail(ACL_RT_PARAM_INVALID, "aclrtSynchronizeDeviceWithTimeout: %d is neither -1 nor a time", ms);
    if (code == 0)
        code = device_wait_idle(context_current()->device, after_ms(ms));
    return call_end(code);
}
