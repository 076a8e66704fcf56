/* Initialising, finalising, versions, and the text of the last error. */
#include <stdlib.h>
#include <string.h>

#include "npu.h"

static uint64_t references;
static int named_default = -1;

bool acl_initialised(void) { return references > 0; }
int default_device(void) { return named_default; }

/* The file is JSON; the one thing in it that concerns us is "default_device": "0". */
static int read_configuration(const char *path)
{
    char text[4096];
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return call_fail(ACL_INVALID_FILE, "aclInit: %s cannot be opened", path);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *at = strstr(text, "\"default_device\"");
    if (at == NULL)
        return 0;
    at += strlen("\"default_device\"");
    at += strspn(at, " \t\r\n:\"");
    char *rest;
    long device = strtol(at, &rest, 10);
    if (rest == at || !device_valid(device))
        return call_fail(ACL_INVALID_FILE, "aclInit: default_device in %s is not a device", path);
    named_default = (int)device;
    return 0;
}

aclError aclInit(const char *configPath)
{
    int code = call_begin(SYM_aclInit, NEEDS_NOTHING);
    if (code != 0)
        return call_end(code);
    if (references > 0) {
        references++;
        return call_end(ACL_REPEAT_INITIALIZE);
    }
    if (configPath != NULL && configPath[0] != '\0' && (code = read_configuration(configPath)) != 0)
        return call_end(code);
    references = 1;
    return call_end(0);
}

aclError aclFinalize(void)
{
    int code = call_begin(SYM_aclFinalize, NEEDS_NOTHING);
    if (code == 0 && references == 0)
        code = ACL_REPEAT_FINALIZE;
    if (code == 0)
        references = 0;
    return call_end(code);
}

aclError aclFinalizeReference(uint64_t *refCount)
{
    int code = call_begin(SYM_aclFinalizeReference, NEEDS_NOTHING);
    if (code == 0 && references == 0)
        code = ACL_REPEAT_FINALIZE;
    if (code == 0) {
        references--;
        if (refCount != NULL)
            *refCount = references;
    }
    return call_end(code);
}

const char *aclGetRecentErrMsg(void)
{
    call_begin(SYM_aclGetRecentErrMsg, NEEDS_NOTHING);
    const char *text = thread_take_text();
    pthread_mutex_unlock(&npu_lock);
    return text;
}

aclError aclrtPeekAtLastError(int level)
{
    call_begin(SYM_aclrtPeekAtLastError, NEEDS_NOTHING);
    int last = level == 0 ? thread_last_error(false) : ACL_INVALID_PARAM;
    pthread_mutex_unlock(&npu_lock);
    return last;
}

aclError aclrtGetLastError(int level)
{
    call_begin(SYM_aclrtGetLastError, NEEDS_NOTHING);
    int last = level == 0 ? thread_last_error(true) : ACL_INVALID_PARAM;
    pthread_mutex_unlock(&npu_lock);
    return last;
}

static const char *version(void)
{
    const struct rule *rule = fault_rule("version", NULL);
    const char *named = rule == NULL ? NULL : rule_value(rule, "acl");
    return named == NULL ? settings.version : named;
}

aclError aclrtGetVersion(int32_t *major, int32_t *minor, int32_t *patch)
{
    int code = call_begin(SYM_aclrtGetVersion, NEEDS_NOTHING);
    if (code == 0 && (major == NULL || minor == NULL || patch == NULL))
        code = ACL_INVALID_PARAM;
    if (code == 0 && sscanf(version(), "%d.%d.%d", major, minor, patch) != 3)
        code = call_fail(ACL_RT_INTERNAL_ERROR, "aclrtGetVersion: version %s is not of the form 1.16.0", version());
    return call_end(code);
}

aclError aclsysGetVersionStr(char *pkgName, char *versionStr)
{
    int code = call_begin(SYM_aclsysGetVersionStr, NEEDS_NOTHING);
    if (code == 0 && (pkgName == NULL || versionStr == NULL))
        code = ACL_INVALID_PARAM;
    if (code == 0 && strcmp(pkgName, "runtime") != 0 && strcmp(pkgName, "hccl") != 0 && strcmp(pkgName, "hcomm") != 0)
        code = call_fail(ACL_INVALID_PARAM, "aclsysGetVersionStr: there is no package %s", pkgName);
    if (code == 0)
        snprintf(versionStr, 128, "%lld.5.0-cannemu", (long long)settings.hccl_generation);
    return call_end(code);
}

const char *aclrtGetSocName(void)
{
    const char *name = settings.soc;
    if (call_begin(SYM_aclrtGetSocName, NEEDS_NOTHING) != 0)
        name = NULL;
    const struct rule *rule = fault_rule("soc", NULL);
    if (name != NULL && rule != NULL && rule_value(rule, "name") != NULL)
        name = rule_value(rule, "name");
    pthread_mutex_unlock(&npu_lock);
    return name;
}
