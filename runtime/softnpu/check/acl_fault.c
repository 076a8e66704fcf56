/* Fault rules below the calls, reports, and the layouts that are told. */
#include "acl.h"

void call_faults(void)
{
    void *p;
    start();
    faults("call:sym=aclrtMalloc,nth=3,count=2,code=207001,msg=no room today");
    for (int i = 1; i <= 5; i++) {
        bool hit = i == 3 || i == 4;
        CODE(hit ? 207001 : 0, aclrtMalloc(&p, 64, 0));
        if (hit)
            CHECK(strcmp(aclGetRecentErrMsg(), "no room today") == 0);
    }
    faults("call:sym=aclrtMalloc,nth=*,code=507899");
    for (int i = 0; i < 3; i++)
        CODE(507899, aclrtMalloc(&p, 64, 0));
    faults("call:sym=aclrtMallocHost,p=0.5,code=200000;seed:7");
    int failed = 0;
    for (int i = 0; i < 200; i++)
        failed += aclrtMallocHost(&p, 64) == 200000;
    CHECK(failed > 50 && failed < 150);
    CHECK(stat_of("seed") == 7);
    faults("call:sym=aclrtGetMemInfo,block=20");
    size_t free_bytes, total;
    OK(aclrtGetMemInfo(1, &free_bytes, &total));
    CHECK(stat_of("injected[call:sym=aclrtGetMemInfo,block=20]") == 1);
    char reply[60000];
    CHECK(cannemu_control("log", reply, sizeof reply) > 0 && strstr(reply, "fault call:sym=aclrtMalloc,nth=3") != NULL);
    CHECK(cannemu_control("faults call:symbol=x", reply, sizeof reply) == -1);
    CHECK(cannemu_control("faults nothing:x=1", reply, sizeof reply) == -1);
    CHECK(cannemu_control("faults hide:sym=aclrtMalloc", reply, sizeof reply) == -1 && strstr(reply, "built") != NULL);
    CHECK(cannemu_control("no such command", reply, sizeof reply) == -1);
    CHECK(cannemu_control(NULL, reply, sizeof reply) == -1);
    CHECK(cannemu_control("set nothing=1", reply, sizeof reply) == -1);
    CHECK(cannemu_control("set queue=x", reply, sizeof reply) == -1);
    expect_none();
}

void lost_device(void)
{
    void *p, *stream;
    int status;
    start();
    OK(aclrtCreateStream(&stream));
    faults("device:lost=0");
    CODE(507010, aclrtMalloc(&p, 64, 0));
    CODE(507010, aclrtSynchronizeStream(stream));
    CODE(507010, aclrtSetDevice(0));
    OK(aclrtQueryDeviceStatus(0, &status));
    CHECK(status == 1);
    OK(aclrtSetDevice(1));
    OK(aclrtMalloc(&p, 64, 0));
    faults("soc:name=Ascend910_9391;version:acl=1.17.3");
    int32_t major, minor, patch;
    OK(aclrtGetVersion(&major, &minor, &patch));
    CHECK(minor == 17 && patch == 3 && strcmp(aclrtGetSocName(), "Ascend910_9391") == 0);
}

void faults_from_environment(void)
{
    setenv("CANNEMU_FAULTS", "call:sym=aclrtSetDevice,nth=2,code=207004", 1);
    setenv("CANNEMU_DEVICES", "3", 1);
    uint32_t count;
    start();
    OK(aclrtGetDeviceCount(&count));
    CHECK(count == 3);
    CODE(207004, aclrtSetDevice(0));
    expect_none();
}

void leaks(void)
{
    char reply[400], directory[] = "/tmp/cannemu-check-XXXXXX", path[200];
    CHECK(mkdtemp(directory) != NULL);
    setenv("CANNEMU_REPORT", directory, 1);
    void *stream, *event;
    start();
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateEvent(&event));
    void *memory = device_memory(64);
    CHECK(cannemu_control("leaks", reply, sizeof reply) > 0);
    CHECK(strstr(reply, "contexts=1\n") != NULL && strstr(reply, "streams=2\n") != NULL);
    CHECK(strstr(reply, "events=1\n") != NULL && strstr(reply, "device_blocks=1\n") != NULL);
    /* The same in a file, for whoever looks after this process was killed. */
    snprintf(path, sizeof path, "%s/%d.live", directory, (int)getpid());
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    size_t length = fread(reply, 1, sizeof reply - 1, file);
    reply[length] = '\0';
    fclose(file);
    CHECK(strstr(reply, "streams=0000000002\n") != NULL);
    unlink(path);
    snprintf(path, sizeof path, "%s/%d.stats", directory, (int)getpid());
    file = fopen(path, "r");
    CHECK(file != NULL && fgets(reply, sizeof reply, file) != NULL && strncmp(reply, "device_memory_high=", 19) == 0);
    fclose(file);
    CODE(107000, aclrtFree(&length));
    unlink(path);
    snprintf(path, sizeof path, "%s/%d.violations", directory, (int)getpid());
    file = fopen(path, "r");
    CHECK(file != NULL && fgets(reply, sizeof reply, file) != NULL && strstr(reply, "free of") != NULL);
    fclose(file);
    unlink(path);
    rmdir(directory);
    OK(aclrtFree(memory));
    OK(aclrtResetDevice(0));
    CHECK(cannemu_control("leaks", reply, sizeof reply) == 0);
}

void layouts(void)
{
    static const struct { const char *name; size_t value; } rows[] = {
        {"aclrtMemLocation", 8}, {"aclrtMemLocation.type", 4}, {"aclrtPtrAttributes", 28}, {"aclrtPtrAttributes.pageSize", 8},
        {"aclrtPtrAttributes.rsv", 12}, {"aclrtMemcpyBatchAttr", 32}, {"aclrtMemcpyBatchAttr.srcLoc", 8},
        {"aclrtMemcpyBatchAttr.rsv", 16}, {"aclrtMallocAttribute", 12}, {"aclrtMallocAttribute.value", 4},
        {"aclrtMallocConfig", 16}, {"aclrtMallocConfig.numAttrs", 8}, {"HcclMem", 24}, {"HcclMem.addr", 8}, {"HcclMem.size", 16},
        {"HcclMemDesc", 512}, {"HcclMemDesc.remoteRank", 4}, {"HcclMemDesc.desc", 8}, {"HcclMemDescs", 16},
        {"HcclMemDescs.arrayLength", 8}, {"HcclOneSideOpDesc", 32}, {"HcclOneSideOpDesc.remoteAddr", 8},
        {"HcclOneSideOpDesc.count", 16}, {"HcclOneSideOpDesc.dataType", 24}, {"HcclPrepareConfig", 32},
        {"HcclPrepareConfig.rsvd0", 8}, {"HcclRootInfo", 4108}, {"HcclCommConfig.magic", 8}, {"HcclCommConfig.version", 12},
        {"HcclCommConfig.hcclCommName", 32}, {"HcclCommConfig.hcclUdi", 160}, {"HcclCommConfig.hcclOpExpansionMode", 288},
        {"HcclCommConfig.hcclRdmaTrafficClass", 292}, {"HcclCommConfig.hcclRdmaServiceLevel", 296},
        {"HcclCommConfig.hcclJobID", 304}, {"HcclCommConfig.hcclExecTimeOut", 316}, {"HcclCommConfig.hcclAlgo", 320},
        {"HcclCommConfig.hcclBufferName", 2098}, {"HcclCommConfig.hcclQos", 2228}, {"HcclCommConfig.hcclChannelSqDepth", 2240},
        {"HcclCommConfig", 2248},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t value = 0;
        CHECK(cannemu_abi(rows[i].name, &value) == 0);
        CHECK(value == rows[i].value);
    }
    size_t value;
    CHECK(cannemu_abi("HcclNothing", &value) == -1);
    CHECK(cannemu_abi(NULL, &value) == -1);
}
