/* Making communicators: from a rank table in memory or in a file, or from root info. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hccl.h"

static int inside; /* calls of this file that run now */

/* The size of each version of the configuration. */
static const size_t sizes[] = {0, 32, 160, 288, 292, 300, 312, 320, 2104, 2232, 2240, 2248};

/* Copies as many fields as the caller has over defaults. */
static int read_config(const HcclCommConfig *from, HcclCommConfig *config)
{
    *config = (HcclCommConfig){.hcclBufferSize = 200};
    if (from == NULL)
        return HCCL_E_PTR;
    size_t size = from->configSize;
    if (size < sizes[1]) {
        violation("HcclCommConfig: configSize %zu is less than the smallest layout", size);
        return HCCL_E_PARA;
    }
    memcpy(config, from, size < sizeof *config ? size : sizeof *config);
    if (config->magic != HCCL_CONFIG_MAGIC)
        return call_fail(HCCL_E_PARA, "HcclCommConfig: magic %#x", config->magic);
    uint32_t newest = sizeof sizes / sizeof *sizes - 1;
    if (config->version == 0 || size < sizes[config->version < newest ? config->version : newest])
        violation("HcclCommConfig: version %u promises more fields than configSize %zu covers", config->version, size);
    if (config->hcclBufferSize == 0)
        return call_fail(HCCL_E_PARA, "HcclCommConfig: hcclBufferSize is 0");
    return 0;
}

const char *communicator_name(const HcclCommConfig *config, int *code)
{
    const char *name = config->hcclCommName;
    if (name[0] == '\0' || memchr(name, '\0', NAME_SIZE) == NULL)
        *code = call_fail(HCCL_E_PARA, "a communicator needs a name of 1 to 127 characters");
    return name;
}

/* Parallel calls are not safe with the vendor's library. Here they last long enough to be detected. */
static int init_begin(enum symbol symbol)
{
    int code = hccl_begin(symbol, NEEDS_CONTEXT);
    if (inside++ > 0)
        violation("%s while another HcclCommInit* runs: they need one lock for the process", symbol_name(symbol));
    struct timespec moment = {.tv_nsec = 500000};
    pthread_mutex_unlock(&npu_lock);
    nanosleep(&moment, NULL);
    pthread_mutex_lock(&npu_lock);
    return code;
}

static int init_end(int code)
{
    inside--;
    return hccl_end(code);
}

static int from_table(const char *json, uint32_t rank, const char *name, HcclComm *comm)
{
    struct rank ranks[MAX_RANKS];
    uint32_t count = 0;
    memset(ranks, 0, sizeof ranks);
    int code = ranktable_parse(json, ranks, &count);
    if (code != 0)
        return code;
    struct communicator *c = comm_new(name, ranks, count, rank, &code);
    if (code == 0)
        *comm = c->handle;
    return code;
}

HcclResult HcclCommInitClusterInfoMemConfig(const char *rankTableJson, uint32_t rank, HcclCommConfig *config, HcclComm *comm)
{
    HcclCommConfig read;
    int code = init_begin(SYM_HcclCommInitClusterInfoMemConfig);
    if (code == 0 && (rankTableJson == NULL || comm == NULL))
        code = HCCL_E_PTR;
    if (code == 0)
        code = read_config(config, &read);
    if (code == 0)
        communicator_name(&read, &code);
    if (code == 0)
        code = from_table(rankTableJson, rank, read.hcclCommName, comm);
    return init_end(code);
}

static int from_file(const char *path, uint32_t rank, const char *name, HcclComm *comm)
{
    char text[65536];
    if (path == NULL || comm == NULL)
        return HCCL_E_PTR;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return call_fail(HCCL_E_OPEN_FILE_FAILURE, "rank table %s cannot be opened", path);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    return from_table(text, rank, name[0] != '\0' ? name : "hccl_world_group", comm);
}

HcclResult HcclCommInitClusterInfo(const char *rankTablePath, uint32_t rank, HcclComm *comm)
{
    int code = init_begin(SYM_HcclCommInitClusterInfo);
    return init_end(code != 0 ? code : from_file(rankTablePath, rank, "", comm));
}

HcclResult HcclCommInitClusterInfoConfig(const char *rankTablePath, uint32_t rank, HcclCommConfig *config, HcclComm *comm)
{
    HcclCommConfig read;
    int code = init_begin(SYM_HcclCommInitClusterInfoConfig);
    if (code == 0)
        code = read_config(config, &read);
    return init_end(code != 0 ? code : from_file(rankTablePath, rank, read.hcclCommName, comm));
}

HcclResult HcclGetRootInfo(HcclRootInfo *rootInfo)
{
    int code = hccl_begin(SYM_HcclGetRootInfo, NEEDS_CONTEXT);
    if (code == 0 && rootInfo == NULL)
        code = HCCL_E_PTR;
    if (code == 0) {
        memset(rootInfo, 0, sizeof *rootInfo);
        snprintf(rootInfo->internal, 64, "cannemu-root-%016llx%016llx", (unsigned long long)now_ns(),
                 (unsigned long long)random_below(UINT64_MAX));
    }
    return hccl_end(code);
}

/* The root's text stands for the addresses that a rank table would have; the ends tell their servers when
 * they meet. */
static int from_root(uint32_t n, const HcclRootInfo *root, uint32_t rank, const char *name, HcclComm *comm)
{
    struct rank ranks[MAX_RANKS];
    int code;
    if (root == NULL || comm == NULL)
        return HCCL_E_PTR;
    if (n == 0 || n > MAX_RANKS || strncmp(root->internal, "cannemu-root-", 13) != 0 || memchr(root->internal, '\0', 64) == NULL)
        return call_fail(HCCL_E_PARA, "%u ranks, or a root info that no HcclGetRootInfo made", n);
    memset(ranks, 0, sizeof ranks);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(ranks[i].address, sizeof ranks[i].address, "%.63s", root->internal);
        ranks[i].port = (int)i;
    }
    struct communicator *c = comm_new(name[0] != '\0' ? name : root->internal, ranks, n, rank, &code);
    if (code == 0) {
        c->root = true;
        *comm = c->handle;
    }
    return code;
}

HcclResult HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank, HcclComm *comm)
{
    int code = init_begin(SYM_HcclCommInitRootInfo);
    return init_end(code != 0 ? code : from_root(nRanks, rootInfo, rank, "", comm));
}

HcclResult HcclCommInitRootInfoConfig(uint32_t nRanks, const HcclRootInfo *rootInfo, uint32_t rank, const HcclCommConfig *config,
                                      HcclComm *comm)
{
    HcclCommConfig read;
    int code = init_begin(SYM_HcclCommInitRootInfoConfig);
    if (code == 0)
        code = read_config(config, &read);
    return init_end(code != 0 ? code : from_root(nRanks, rootInfo, rank, read.hcclCommName, comm));
}
