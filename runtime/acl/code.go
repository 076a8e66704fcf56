package acl

import "fmt"

// A Code is an aclError: the result of a call of AscendCL. Further codes may exist, so keep the number and decide by
// Class.
type Code int32

// The codes that the binding itself decides by; every further code is handled by class.
const (
	success          Code = 0
	repeatInitialize Code = 100002
	compilingStub    Code = 100039
)

type codeInfo struct {
	name  string // without ACL_ERROR_
	class Class
}

// codes holds the codes of AscendCL's headers that matter here. Success is not an entry.
var codes = map[Code]codeInfo{
	100000: {"INVALID_PARAM", Bug},
	100001: {"UNINITIALIZE", Bug},
	100002: {"REPEAT_INITIALIZE", Bug},
	100003: {"INVALID_FILE", Config},
	100037: {"REPEAT_FINALIZE", Bug},
	100039: {"COMPILING_STUB_MODE", Config},

	107000: {"RT_PARAM_INVALID", Bug},
	107001: {"RT_INVALID_DEVICEID", Config},
	107002: {"RT_CONTEXT_NULL", Bug},
	107003: {"RT_STREAM_CONTEXT", Bug},
	107008: {"RT_ADDR_UNALIGNED", Bug},
	107017: {"RT_INVALID_HANDLE", Bug},
	107018: {"RT_INVALID_MALLOC_TYPE", Bug},
	107019: {"RT_WAIT_TIMEOUT", Timeout},
	107020: {"RT_TASK_TIMEOUT", Link},
	107022: {"RT_DEVICE_TASK_ABORT", Link},
	107023: {"RT_STREAM_ABORT", Cancelled},
	107035: {"RT_TASK_ABORT_STOP", Link},

	200000: {"BAD_ALLOC", OutOfMemory},
	200001: {"API_NOT_SUPPORT", Unsupported},
	200002: {"INVALID_DEVICE", Config},
	200003: {"MEMORY_ADDRESS_UNALIGNED", Bug},
	200005: {"INVALID_RESOURCE_HANDLE", Bug},
	200006: {"FEATURE_UNSUPPORTED", Unsupported},

	207000: {"RT_FEATURE_NOT_SUPPORT", Unsupported},
	207001: {"RT_MEMORY_ALLOCATION", OutOfMemory},
	207002: {"RT_MEMORY_FREE", Bug},
	207004: {"RT_NO_DEVICE", Config},
	207005: {"RT_RESOURCE_ALLOC_FAIL", Exhausted},
	207006: {"RT_NO_PERMISSION", Config},
	207007: {"RT_NO_EVENT_RESOURCE", Exhausted},
	207008: {"RT_NO_STREAM_RESOURCE", Exhausted},
	207009: {"RT_NO_NOTIFY_RESOURCE", Exhausted},
	207012: {"RT_OVER_LIMIT", Exhausted},
	207018: {"RT_DEVICE_OOM", OutOfMemory},
	207020: {"RT_TIMEOUT", Device},

	300000: {"STORAGE_OVER_LIMIT", OutOfMemory},
	500000: {"INTERNAL_ERROR", Device},

	507000: {"RT_INTERNAL_ERROR", Device},
	507001: {"RT_TS_ERROR", Device},
	507002: {"RT_STREAM_TASK_FULL", Exhausted},
	507010: {"RT_LOST_HEARTBEAT", DeviceLost},
	507012: {"RT_REPORT_TIMEOUT", Device},
	507013: {"RT_SYS_DMA", Link},
	507014: {"RT_AICORE_TIMEOUT", EngineFailure},
	507015: {"RT_AICORE_EXCEPTION", EngineFailure},
	507017: {"RT_AICPU_TIMEOUT", Link},
	507018: {"RT_AICPU_EXCEPTION", Link},
	507022: {"RT_IPC_ERROR", Link},
	507033: {"RT_DEV_SETUP_ERROR", Device},
	507046: {"RT_STREAM_SYNC_TIMEOUT", Timeout},
	507047: {"RT_EVENT_SYNC_TIMEOUT", Timeout},
	507048: {"RT_FFTS_PLUS_TIMEOUT", Link},
	507049: {"RT_FFTS_PLUS_EXCEPTION", Link},
	507051: {"RT_SEND_MSG", Device},
	507052: {"RT_COPY_DATA", Device},
	507053: {"RT_DEVICE_MEM_ERROR", DeviceLost},
	507054: {"RT_HBM_MULTI_BIT_ECC_ERROR", DeviceLost},
	507055: {"RT_SUSPECT_DEVICE_MEM_ERROR", DeviceLost},
	507056: {"RT_LINK_ERROR", Link},
	507057: {"RT_SUSPECT_REMOTE_ERROR", Link},

	507899: {"RT_DRV_INTERNAL_ERROR", Device},
	507900: {"RT_AICPU_INTERNAL_ERROR", Link},
	507901: {"RT_SOCKET_CLOSE", DeviceLost},
	507904: {"RT_COMM_OP_RETRY_FAIL", Link},
	507910: {"HOST_MEMORY_ALREADY_REGISTERED", Bug},
	507911: {"HOST_MEMORY_NOT_REGISTERED", Bug},
}

// String returns the name that AscendCL's headers give the code, or its number.
func (c Code) String() string {
	if c == success {
		return "ACL_SUCCESS"
	}
	if info, ok := codes[c]; ok {
		return "ACL_ERROR_" + info.name
	}
	return fmt.Sprintf("aclError %d", int32(c))
}
