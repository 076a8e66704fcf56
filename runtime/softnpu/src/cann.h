/* The part of CANN's C ABI that the software NPU implements: types, enums, structs and codes, written from the
 * specification alone. The Go bindings have declarations of their own; sharing them would hide a mistake in either.
 * abi.c asserts offsets and sizes. */
#ifndef CANN_H
#define CANN_H

#include <stddef.h>
#include <stdint.h>

typedef int aclError;
typedef void *aclrtContext;
typedef void *aclrtStream;
typedef void *aclrtEvent;

enum { /* aclrtMemcpyKind */
    MEMCPY_HOST_TO_HOST = 0, MEMCPY_HOST_TO_DEVICE = 1, MEMCPY_DEVICE_TO_HOST = 2, MEMCPY_DEVICE_TO_DEVICE = 3,
    MEMCPY_DEFAULT = 4, MEMCPY_HOST_TO_BUF_TO_DEVICE = 5, MEMCPY_INNER_DEVICE = 6, MEMCPY_INTER_DEVICE = 7,
};
enum { MALLOC_HUGE_FIRST = 0, MALLOC_HUGE1G_ONLY_P2P = 7 };                /* aclrtMemMallocPolicy */
enum { RECORDED_NOT_READY = 0, RECORDED_COMPLETE = 1 };                   /* aclrtEventRecordedStatus */
enum { WAIT_COMPLETE = 0, WAIT_NOT_READY = 1 };                           /* aclrtEventWaitStatus */
enum { STREAM_COMPLETE = 0, STREAM_NOT_READY = 1 };                       /* aclrtStreamStatus */
enum { LOCATION_HOST = 0, LOCATION_DEVICE = 1, LOCATION_UNREGISTERED = 2 }; /* aclrtMemLocationType */
enum { HOST_REGISTER_MAPPED = 0, HOST_REGISTER_IOMEMORY = 4, HOST_REGISTER_READONLY = 8 };
enum { CONTINUE_ON_FAILURE = 0, STOP_ON_FAILURE = 1 };
enum { EVENT_SYNC = 0x1, EVENT_TIME_LINE = 0x8 };
enum { RUN_MODE_HOST = 1 };
enum { DEVICE_NORMAL = 0, DEVICE_ABNORMAL = 1 };
enum { /* aclrtDevAttr */
    ATTR_TOTAL_GLOBAL_MEM_SIZE = 301, ATTR_PHY_CHIP_ID = 402, ATTR_SUPER_POD_DEVICE_ID = 403,
    ATTR_SUPER_POD_SERVER_ID = 404, ATTR_SUPER_POD_ID = 405,
};

typedef struct { uint32_t id; int type; } aclrtMemLocation;
typedef struct { aclrtMemLocation location; uint32_t pageSize; uint32_t rsv[4]; } aclrtPtrAttributes;
typedef struct { aclrtMemLocation dstLoc, srcLoc; uint8_t rsv[16]; } aclrtMemcpyBatchAttr;
typedef struct {
    int attr;
    union { uint16_t moduleId; uint32_t deviceId; uint32_t vaFlag; uint8_t rsv[8]; } value;
} aclrtMallocAttribute;
typedef struct { aclrtMallocAttribute *attrs; size_t numAttrs; } aclrtMallocConfig;

/* The codes that the software NPU returns by itself. A fault rule may return any other. */
#define ACL_CODES(X) \
    X(100000, INVALID_PARAM) X(100001, UNINITIALIZE) X(100002, REPEAT_INITIALIZE) X(100003, INVALID_FILE) \
    X(100037, REPEAT_FINALIZE) X(107000, RT_PARAM_INVALID) X(107001, RT_INVALID_DEVICEID) X(107002, RT_CONTEXT_NULL) \
    X(107003, RT_STREAM_CONTEXT) X(107008, RT_ADDR_UNALIGNED) X(107017, RT_INVALID_HANDLE) \
    X(107023, RT_STREAM_ABORT) X(200000, BAD_ALLOC) X(207000, RT_FEATURE_NOT_SUPPORT) X(207001, RT_MEMORY_ALLOCATION) \
    X(207007, RT_NO_EVENT_RESOURCE) X(207008, RT_NO_STREAM_RESOURCE) X(507000, RT_INTERNAL_ERROR) X(507002, RT_STREAM_TASK_FULL) \
    X(507010, RT_LOST_HEARTBEAT) X(507046, RT_STREAM_SYNC_TIMEOUT) X(507047, RT_EVENT_SYNC_TIMEOUT) \
    X(507053, RT_DEVICE_MEM_ERROR) X(507056, RT_LINK_ERROR) X(507057, RT_SUSPECT_REMOTE_ERROR) \
    X(507910, HOST_MEMORY_ALREADY_REGISTERED) X(507911, HOST_MEMORY_NOT_REGISTERED)

enum {
    ACL_SUCCESS = 0,
#define X(code, name) ACL_##name = code,
    ACL_CODES(X)
#undef X
};

typedef int HcclResult;
typedef void *HcclComm;

#define HCCL_CODES(X) \
    X(0, SUCCESS) X(1, E_PARA) X(2, E_PTR) X(3, E_MEMORY) X(4, E_INTERNAL) X(5, E_NOT_SUPPORT) X(6, E_NOT_FOUND) \
    X(7, E_UNAVAIL) X(8, E_SYSCALL) X(9, E_TIMEOUT) X(10, E_OPEN_FILE_FAILURE) X(11, E_TCP_CONNECT) \
    X(12, E_ROCE_CONNECT) X(13, E_TCP_TRANSFER) X(14, E_ROCE_TRANSFER) X(15, E_RUNTIME) X(16, E_DRV) \
    X(17, E_PROFILING) X(18, E_CCE) X(19, E_NETWORK) X(20, E_AGAIN) X(21, E_REMOTE) X(22, E_SUSPENDING)

enum {
#define X(code, name) HCCL_##name = code,
    HCCL_CODES(X)
#undef X
};

enum { HCCL_MEM_DEVICE = 0, HCCL_MEM_HOST = 1 };

typedef struct { int type; void *addr; uint64_t size; } HcclMem;
typedef struct { uint32_t localRank, remoteRank; char desc[504]; } HcclMemDesc;
typedef struct { HcclMemDesc *array; uint32_t arrayLength; } HcclMemDescs;
typedef struct { void *localAddr, *remoteAddr; uint64_t count; int dataType; } HcclOneSideOpDesc;
typedef struct { int topoType; uint64_t rsvd0, rsvd1, rsvd2; } HcclPrepareConfig;
typedef struct { char internal[4108]; } HcclRootInfo;

/* The newest layout, version 11; older ones are prefixes of it. */
typedef struct {
    size_t configSize;
    uint32_t magic, version;
    uint64_t reserved;
    uint32_t hcclBufferSize, hcclDeterministic;
    char hcclCommName[128], hcclUdi[128];
    uint32_t hcclOpExpansionMode, hcclRdmaTrafficClass, hcclRdmaServiceLevel, hcclWorldRankID;
    uint64_t hcclJobID;
    uint8_t aclGraphZeroCopyEnable;
    int32_t hcclExecTimeOut;
    char hcclAlgo[1600], hcclRetryEnable[50], hcclRetryParams[128], hcclBufferName[128];
    uint32_t hcclQos;
    uint64_t hcclSymWinMaxMemSizePerRank;
    uint32_t hcclChannelSqDepth;
} HcclCommConfig;

#define HCCL_CONFIG_MAGIC 0xf0f0f0f0u

#endif
