/* What every check program uses: prototypes as the vendor documents them, and CHECK. The library is linked
 * in the ordinary way; these declarations are the checks' own. */
#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { uint32_t id; int type; } location_t;
typedef struct { location_t location; uint32_t pageSize; uint32_t rsv[4]; } attributes_t;
typedef struct { location_t dst, src; uint8_t rsv[16]; } batch_attribute_t;

int aclInit(const char *);
int aclFinalize(void);
int aclFinalizeReference(uint64_t *);
const char *aclGetRecentErrMsg(void);
int aclrtPeekAtLastError(int), aclrtGetLastError(int);
int aclrtGetVersion(int32_t *, int32_t *, int32_t *);
int aclsysGetVersionStr(char *, char *);
const char *aclrtGetSocName(void);
int aclrtGetDeviceCount(uint32_t *);
int aclrtSetDevice(int32_t), aclrtResetDevice(int32_t), aclrtResetDeviceForce(int32_t), aclrtGetDevice(int32_t *);
int aclrtGetRunMode(int *);
int aclrtCreateContext(void **, int32_t), aclrtDestroyContext(void *), aclrtSetCurrentContext(void *), aclrtGetCurrentContext(void **);
int aclrtCtxGetCurrentDefaultStream(void **), aclrtSynchronizeDevice(void), aclrtSynchronizeDeviceWithTimeout(int32_t);
int aclrtQueryDeviceStatus(int32_t, int *), aclrtGetDeviceInfo(uint32_t, int, int64_t *);
int aclrtGetPhyDevIdByLogicDevId(int32_t, int32_t *), aclrtGetLogicDevIdByPhyDevId(int32_t, int32_t *);
int aclrtGetLogicDevIdByUserDevId(int32_t, int32_t *), aclrtGetUserDevIdByLogicDevId(int32_t, int32_t *);
int aclrtDeviceCanAccessPeer(int32_t *, int32_t, int32_t), aclrtDeviceEnablePeerAccess(int32_t, uint32_t);
int aclrtCreateStream(void **), aclrtCreateStreamWithConfig(void **, uint32_t, uint32_t);
int aclrtDestroyStream(void *), aclrtDestroyStreamForce(void *), aclrtSynchronizeStream(void *);
int aclrtSynchronizeStreamWithTimeout(void *, int32_t), aclrtStreamQuery(void *, int *), aclrtStreamAbort(void *);
int aclrtSetStreamFailureMode(void *, uint64_t), aclrtStreamGetId(void *, int32_t *), aclrtGetStreamAvailableNum(uint32_t *);
int aclrtCreateEvent(void **), aclrtCreateEventWithFlag(void **, uint32_t), aclrtCreateEventExWithFlag(void **, uint32_t);
int aclrtRecordEvent(void *, void *), aclrtResetEvent(void *, void *), aclrtQueryEventStatus(void *, int *);
int aclrtQueryEventWaitStatus(void *, int *), aclrtStreamWaitEvent(void *, void *), aclrtSynchronizeEvent(void *);
int aclrtSynchronizeEventWithTimeout(void *, int32_t), aclrtDestroyEvent(void *), aclrtEventElapsedTime(float *, void *, void *);
int aclrtMalloc(void **, size_t, int), aclrtMallocWithCfg(void **, size_t, int, void *), aclrtFree(void *), aclrtFreeWithDevSync(void *);
int aclrtMallocHost(void **, size_t), aclrtFreeHost(void *);
int aclrtMemcpy(void *, size_t, const void *, size_t, int), aclrtMemcpyAsync(void *, size_t, const void *, size_t, int, void *);
int aclrtMemset(void *, size_t, int32_t, size_t), aclrtMemsetAsync(void *, size_t, int32_t, size_t, void *);
int aclrtMemcpyBatch(void **, size_t *, void **, size_t *, size_t, batch_attribute_t *, size_t *, size_t, size_t *);
int aclrtMemcpyBatchAsync(void **, size_t *, void **, size_t *, size_t, batch_attribute_t *, size_t *, size_t, size_t *, void *);
int aclrtHostRegister(void *, uint64_t, int, void **), aclrtHostRegisterV2(void *, uint64_t, uint32_t);
int aclrtHostGetDevicePointer(void *, void **, uint32_t), aclrtHostUnregister(void *);
int aclrtGetMemInfo(int, size_t *, size_t *), aclrtPointerGetAttributes(const void *, attributes_t *);
int aclrtMemGetAddressRange(void *, void **, size_t *);
int aclrtIpcMemGetExportKey(void *, size_t, char *, size_t, uint64_t), aclrtIpcMemSetImportPid(const char *, int32_t *, size_t);
int aclrtIpcMemImportByKey(void **, const char *, uint64_t), aclrtIpcMemClose(const char *), aclrtDeviceGetBareTgid(int32_t *);
int cannemu_control(const char *, char *, size_t), cannemu_abi(const char *, size_t *);

enum { H2H, H2D, D2H, D2D, KIND_DEFAULT };

#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))
#define CODE(wanted, call) check_code(__FILE__, __LINE__, #call, wanted, call)
#define OK(call) CODE(0, call)

void check_failed(const char *file, int line, const char *what);
void check_code(const char *file, int line, const char *what, int wanted, int got);

void start(void); /* aclInit and device 0 on this thread */
void faults(const char *rules); /* in place of those before; "" for none */
void set(const char *setting);
void expect_violation(const char *part); /* exactly one since the last time, and it says this; then forgotten */
void expect_none(void);
int64_t stat_of(const char *name); /* a counter; 0 when it is not told */
void *device_memory(size_t n);
void *host_memory(size_t n); /* pinned */
void upload(void *device, const void *from, size_t n);
void download(void *to, const void *device, size_t n);
void stuck(void *stream, void *device, void *pinned); /* a copy that does not end before release() */
void release(void);
void in_thread(void (*body)(void *), void *argument); /* and waits for it */

struct scenario { const char *name; void (*run)(void); };
/* Runs the scenario that the program's argument names, or prints all names. */
int check_main(int argc, char **argv, const struct scenario *scenarios, size_t count);

#endif
