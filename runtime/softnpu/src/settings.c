/* What can be set: by CANNEMU_NAME in the environment before the first call, or by "set name=value". */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npu.h"

struct settings settings = {
    .devices = 2,
    .device_memory = 1 * GIB,
    .host_memory = 4 * GIB,
    .strict_init = 1,        /* calls before aclInit are refused */
    .strict_memory = 1,      /* the program cannot dereference device addresses */
    .delay_us = 20,          /* the longest random delay before a task starts */
    .queue = 4096,           /* tasks in one stream */
    .queue_full_fails = 0,   /* 507002 instead of blocking */
    .streams = 1984,
    .events = 65536,
    .descriptors = 256,
    .hccl_generation = 9,    /* 8: one registry per process with limits; 9: one per device */
    .hccs_linger_ms = 200,   /* how long a revoked HCCS mapping goes on working */
    .destroy_waits = 0,      /* HcclCommDestroy with work outstanding: 20, or wait */
    .fill_max = 64 * MIB,    /* larger allocations get the pattern in the first 4 KiB of each 2 MiB only */
    .residual_ms = 0,        /* R; 0: from HCCL_RDMA_TIMEOUT and HCCL_RDMA_RETRY_CNT */
    .exchange_overflows = 0, /* HcclExchangeMemDesc overruns a short array, as the vendor's does */
    .soc = "Ascend910B3",
    .version = "1.16.0",
    .server = "host",
    .gone = "error",
};

static const struct { const char *name; int64_t *value; } numbers[] = {
    {"devices", &settings.devices}, {"device_memory", &settings.device_memory}, {"host_memory", &settings.host_memory},
    {"strict_init", &settings.strict_init}, {"strict_memory", &settings.strict_memory}, {"delay_us", &settings.delay_us},
    {"queue", &settings.queue}, {"queue_full_fails", &settings.queue_full_fails}, {"streams", &settings.streams},
    {"events", &settings.events}, {"descriptors", &settings.descriptors}, {"seed", &settings.seed},
    {"hccl_generation", &settings.hccl_generation}, {"hccs_linger_ms", &settings.hccs_linger_ms},
    {"destroy_waits", &settings.destroy_waits}, {"fill_max", &settings.fill_max}, {"residual_ms", &settings.residual_ms},
    {"exchange_overflows", &settings.exchange_overflows},
};

static const struct { const char *name; char *value; size_t size; } texts[] = {
    {"soc", settings.soc, sizeof settings.soc}, {"version", settings.version, sizeof settings.version},
    {"dir", settings.directory, sizeof settings.directory}, {"log", settings.log, sizeof settings.log},
    {"report", settings.report, sizeof settings.report}, {"model", settings.model, sizeof settings.model},
    {"server", settings.server, sizeof settings.server}, {"gone", settings.gone, sizeof settings.gone},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

bool settings_set(const char *name, const char *value)
{
    for (size_t i = 0; i < COUNT(numbers); i++) {
        char *rest;
        if (strcmp(name, numbers[i].name) != 0)
            continue;
        int64_t parsed = strtoll(value, &rest, 10);
        if (rest == value || *rest != '\0' || parsed < 0)
            return false;
        *numbers[i].value = parsed;
        if (numbers[i].value == &settings.seed)
            random_seed((uint64_t)parsed);
        return true;
    }
    for (size_t i = 0; i < COUNT(texts); i++)
        if (strcmp(name, texts[i].name) == 0 && strlen(value) < texts[i].size) {
            strcpy(texts[i].value, value);
            return true;
        }
    return false;
}

static const char *environment(const char *name)
{
    char variable[64] = "CANNEMU_";
    size_t at = strlen(variable);
    for (; *name != '\0' && at + 1 < sizeof variable; name++)
        variable[at++] = (char)toupper((unsigned char)*name);
    variable[at] = '\0';
    return getenv(variable);
}

static void from_environment(const char *name)
{
    const char *value = environment(name);
    if (value != NULL && !settings_set(name, value))
        violation("the environment's setting %s=%s is not understood", name, value);
}

void settings_load(void)
{
    static bool loaded;
    if (loaded)
        return;
    loaded = true;
    settings.seed = (now_ns() ^ getpid()) & 0xffffffff;
    random_seed((uint64_t)settings.seed);
    /* Reports are opened first, so that mistakes in other settings can be reported there. */
    from_environment("log");
    from_environment("report");
    report_open();
    for (size_t i = 0; i < COUNT(numbers); i++)
        from_environment(numbers[i].name);
    for (size_t i = 0; i < COUNT(texts); i++)
        from_environment(texts[i].name);
    if (settings.devices > MAX_DEVICES)
        settings.devices = MAX_DEVICES;
    if (settings.directory[0] == '\0')
        snprintf(settings.directory, sizeof settings.directory, "%s/cannemu-%u", P_tmpdir, (unsigned)getuid());
    note("seed %lld", (long long)settings.seed);
    const char *rules = getenv("CANNEMU_FAULTS");
    char problem[160];
    if (rules != NULL && !faults_add(rules, problem, sizeof problem))
        violation("CANNEMU_FAULTS: %s", problem);
}
