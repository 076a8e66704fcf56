/* The layouts of the specification: asserted at compile time, and reported on request. */
#include <string.h>

#include "npu.h"

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " is not of the specification's size");
#define AT(type, field, offset) \
    _Static_assert(offsetof(type, field) == (offset), #type "." #field " is not where the specification has it");

#define LAYOUT(SIZE, AT) \
    SIZE(aclrtMemLocation, 8) AT(aclrtMemLocation, id, 0) AT(aclrtMemLocation, type, 4) \
    SIZE(aclrtPtrAttributes, 28) AT(aclrtPtrAttributes, location, 0) AT(aclrtPtrAttributes, pageSize, 8) \
    AT(aclrtPtrAttributes, rsv, 12) \
    SIZE(aclrtMemcpyBatchAttr, 32) AT(aclrtMemcpyBatchAttr, dstLoc, 0) AT(aclrtMemcpyBatchAttr, srcLoc, 8) \
    AT(aclrtMemcpyBatchAttr, rsv, 16) \
    SIZE(aclrtMallocAttribute, 12) AT(aclrtMallocAttribute, attr, 0) AT(aclrtMallocAttribute, value, 4) \
    SIZE(aclrtMallocConfig, 16) AT(aclrtMallocConfig, attrs, 0) AT(aclrtMallocConfig, numAttrs, 8) \
    SIZE(HcclMem, 24) AT(HcclMem, type, 0) AT(HcclMem, addr, 8) AT(HcclMem, size, 16) \
    SIZE(HcclMemDesc, 512) AT(HcclMemDesc, localRank, 0) AT(HcclMemDesc, remoteRank, 4) AT(HcclMemDesc, desc, 8) \
    SIZE(HcclMemDescs, 16) AT(HcclMemDescs, array, 0) AT(HcclMemDescs, arrayLength, 8) \
    SIZE(HcclOneSideOpDesc, 32) AT(HcclOneSideOpDesc, localAddr, 0) AT(HcclOneSideOpDesc, remoteAddr, 8) \
    AT(HcclOneSideOpDesc, count, 16) AT(HcclOneSideOpDesc, dataType, 24) \
    SIZE(HcclPrepareConfig, 32) AT(HcclPrepareConfig, topoType, 0) AT(HcclPrepareConfig, rsvd0, 8) \
    AT(HcclPrepareConfig, rsvd1, 16) AT(HcclPrepareConfig, rsvd2, 24) \
    SIZE(HcclRootInfo, 4108) AT(HcclRootInfo, internal, 0) \
    SIZE(HcclCommConfig, 2248) AT(HcclCommConfig, configSize, 0) AT(HcclCommConfig, magic, 8) AT(HcclCommConfig, version, 12) \
    AT(HcclCommConfig, reserved, 16) AT(HcclCommConfig, hcclBufferSize, 24) AT(HcclCommConfig, hcclDeterministic, 28) \
    AT(HcclCommConfig, hcclCommName, 32) AT(HcclCommConfig, hcclUdi, 160) AT(HcclCommConfig, hcclOpExpansionMode, 288) \
    AT(HcclCommConfig, hcclRdmaTrafficClass, 292) AT(HcclCommConfig, hcclRdmaServiceLevel, 296) \
    AT(HcclCommConfig, hcclWorldRankID, 300) AT(HcclCommConfig, hcclJobID, 304) AT(HcclCommConfig, aclGraphZeroCopyEnable, 312) \
    AT(HcclCommConfig, hcclExecTimeOut, 316) AT(HcclCommConfig, hcclAlgo, 320) AT(HcclCommConfig, hcclRetryEnable, 1920) \
    AT(HcclCommConfig, hcclRetryParams, 1970) AT(HcclCommConfig, hcclBufferName, 2098) AT(HcclCommConfig, hcclQos, 2228) \
    AT(HcclCommConfig, hcclSymWinMaxMemSizePerRank, 2232) AT(HcclCommConfig, hcclChannelSqDepth, 2240)

LAYOUT(SIZE, AT)

#define SIZE_ROW(type, size) {#type, sizeof(type)},
#define AT_ROW(type, field, offset) {#type "." #field, offsetof(type, field)},

static const struct { const char *name; size_t value; } rows[] = {LAYOUT(SIZE_ROW, AT_ROW)};

/* Returns 0 and the size of a type or the offset of type.field; -1 if the specification does not have the name. */
int cannemu_abi(const char *typeAndField, size_t *value)
{
    if (typeAndField == NULL || value == NULL)
        return -1;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, typeAndField) == 0) {
            *value = rows[i].value;
            return 0;
        }
    return -1;
}
