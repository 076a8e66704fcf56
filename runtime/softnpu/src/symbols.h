/* Every vendor symbol the software NPU exports, in the groups of the specification. A call is counted,
 * and hit by fault rules, under its name here; exports.map lists the same names for the linker. */
#ifndef SYMBOLS_H
#define SYMBOLS_H

#define SYMBOLS(X) \
    /* life cycle */ \
    X(aclInit) X(aclFinalize) X(aclFinalizeReference) X(aclGetRecentErrMsg) X(aclrtPeekAtLastError) X(aclrtGetLastError) \
    X(aclrtGetVersion) X(aclsysGetVersionStr) X(aclrtGetSocName) \
    /* device, context */ \
    X(aclrtGetDeviceCount) X(aclrtSetDevice) X(aclrtResetDevice) X(aclrtResetDeviceForce) X(aclrtGetDevice) \
    X(aclrtGetRunMode) X(aclrtCreateContext) X(aclrtDestroyContext) X(aclrtSetCurrentContext) X(aclrtGetCurrentContext) \
    X(aclrtCtxGetCurrentDefaultStream) X(aclrtSynchronizeDevice) X(aclrtSynchronizeDeviceWithTimeout) \
    X(aclrtQueryDeviceStatus) X(aclrtGetDeviceInfo) X(aclrtGetPhyDevIdByLogicDevId) X(aclrtGetLogicDevIdByPhyDevId) \
    X(aclrtGetLogicDevIdByUserDevId) X(aclrtGetUserDevIdByLogicDevId) X(aclrtDeviceCanAccessPeer) \
    X(aclrtDeviceEnablePeerAccess) \
    /* stream */ \
    X(aclrtCreateStream) X(aclrtCreateStreamWithConfig) X(aclrtDestroyStream) X(aclrtDestroyStreamForce) \
    X(aclrtSynchronizeStream) X(aclrtSynchronizeStreamWithTimeout) X(aclrtStreamQuery) X(aclrtStreamAbort) \
    X(aclrtSetStreamFailureMode) X(aclrtStreamGetId) X(aclrtGetStreamAvailableNum) \
    /* event */ \
    X(aclrtCreateEvent) X(aclrtCreateEventWithFlag) X(aclrtCreateEventExWithFlag) X(aclrtRecordEvent) X(aclrtResetEvent) \
    X(aclrtQueryEventStatus) X(aclrtQueryEventWaitStatus) X(aclrtStreamWaitEvent) X(aclrtSynchronizeEvent) \
    X(aclrtSynchronizeEventWithTimeout) X(aclrtDestroyEvent) X(aclrtEventElapsedTime) \
    /* memory */ \
    X(aclrtMalloc) X(aclrtMallocWithCfg) X(aclrtFree) X(aclrtFreeWithDevSync) X(aclrtMallocHost) X(aclrtFreeHost) \
    X(aclrtMemcpy) X(aclrtMemcpyAsync) X(aclrtMemset) X(aclrtMemsetAsync) X(aclrtMemcpyBatch) X(aclrtMemcpyBatchAsync) \
    X(aclrtHostRegister) X(aclrtHostRegisterV2) X(aclrtHostGetDevicePointer) X(aclrtHostUnregister) X(aclrtGetMemInfo) \
    X(aclrtPointerGetAttributes) X(aclrtMemGetAddressRange) \
    /* memory of other processes */ \
    X(aclrtIpcMemGetExportKey) X(aclrtIpcMemSetImportPid) X(aclrtIpcMemImportByKey) X(aclrtIpcMemClose) \
    X(aclrtDeviceGetBareTgid) \
    /* HCCL A: global memory, bind, prepare */ \
    X(HcclCommInitClusterInfoMemConfig) X(HcclCommDestroy) X(HcclRegisterGlobalMem) X(HcclDeregisterGlobalMem) \
    X(HcclCommBindMem) X(HcclCommUnbindMem) X(HcclCommPrepare) X(HcclBatchPut) X(HcclBatchGet) X(HcclGetErrorString) \
    X(HcclGetCommAsyncError) X(HcclGetCommConfigCapability) \
    /* HCCL B: register, exchange, enable */ \
    X(HcclGetRootInfo) X(HcclCommInitRootInfo) X(HcclCommInitRootInfoConfig) X(HcclCommInitClusterInfo) \
    X(HcclCommInitClusterInfoConfig) X(HcclRegisterMem) X(HcclDeregisterMem) X(HcclExchangeMemDesc) \
    X(HcclEnableMemAccess) X(HcclDisableMemAccess) X(HcclRemapRegistedMemory)

enum symbol {
#define X(name) SYM_##name,
    SYMBOLS(X)
#undef X
    SYMBOL_COUNT
};

#endif
