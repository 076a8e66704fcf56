/* Rank tables, versions 1.0 and 1.2, read strictly. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "hccl.h"

#define DEFAULT_PORT 16666

struct table { struct rank *ranks; bool seen[MAX_RANKS]; uint32_t count; bool pods; const struct json *root; };

/* All numbers are strings of digits. */
static bool number(const struct json *value, long most, int *to)
{
    const char *text = json_text(value);
    if (text == NULL || text[0] == '\0' || strlen(text) > 10 || strspn(text, "0123456789") != strlen(text) ||
        strtol(text, NULL, 10) > most)
        return false;
    *to = (int)strtol(text, NULL, 10);
    return true;
}

static int fault(const char *what) { return call_fail(HCCL_E_PARA, "rank table: %s", what); }

static bool keep(char *to, size_t size, const char *text)
{
    if (text == NULL || text[0] == '\0' || strlen(text) >= size)
        return false;
    strcpy(to, text);
    return true;
}

/* The super pod whose list has the server. */
static const char *pod_of(const struct json *root, const char *server)
{
    for (const struct json *pod = json_first(json_member(root, "super_pod_list")); pod != NULL; pod = json_next(pod))
        for (const struct json *s = json_first(json_member(pod, "server_list")); s != NULL; s = json_next(s)) {
            const char *id = json_text(json_member(s, "server_id"));
            if (id != NULL && strcmp(id, server) == 0)
                return json_text(json_member(pod, "super_pod_id"));
        }
    return NULL;
}

static int read_device(struct table *t, const struct json *device, const char *server)
{
    int rank, super;
    struct rank r = {.port = DEFAULT_PORT};
    const struct json *port = json_member(device, "device_port");
    if (!number(json_member(device, "rank_id"), MAX_RANKS - 1, &rank) || t->seen[rank])
        return fault("rank_id is missing, no number, too large, or there twice");
    if (!number(json_member(device, "device_id"), 4095, &r.device))
        return fault("device_id is missing or no number");
    if (port != NULL && !number(port, 65535, &r.port))
        return fault("device_port is no port");
    if (!keep(r.server, sizeof r.server, server))
        return fault("server_id is missing or longer than 64 characters");
    if (t->pods && (!number(json_member(device, "super_device_id"), INT32_MAX, &super) ||
                    !keep(r.pod, sizeof r.pod, pod_of(t->root, server))))
        return fault("version 1.2 wants super_device_id, and each server in a super pod");
    const char *address = json_text(json_member(device, "device_ip"));
    if (address == NULL || address[0] == '\0')
        return call_fail(HCCL_E_NOT_FOUND, "rank table: rank %d has no device_ip", rank);
    if (!keep(r.address, sizeof r.address, address))
        return fault("device_ip is too long");
    t->seen[rank] = true;
    t->ranks[rank] = r;
    t->count++;
    return 0;
}

static int read_servers(struct table *t)
{
    const struct json *server = json_first(json_member(t->root, "server_list"));
    int wanted, servers = 0, code = 0;
    const struct json *declared = json_member(t->root, "server_count");
    for (; server != NULL && code == 0; server = json_next(server), servers++) {
        const struct json *device = json_first(json_member(server, "device"));
        if (device == NULL)
            return fault("a server without devices");
        for (; device != NULL && code == 0; device = json_next(device))
            code = read_device(t, device, json_text(json_member(server, "server_id")));
    }
    if (code != 0)
        return code;
    if ((declared != NULL || !t->pods) && (!number(declared, 1000000, &wanted) || wanted != servers))
        return fault("server_count is not the number of servers");
    for (uint32_t i = 0; i < t->count; i++)
        if (!t->seen[i])
            return fault("the rank ids have a gap");
    return t->count == 0 ? fault("there are no ranks") : 0;
}

int ranktable_parse(const char *text, struct rank ranks[MAX_RANKS], uint32_t *count)
{
    struct json *root = json_parse(text);
    struct table t = {.ranks = ranks, .root = root};
    const char *status = json_text(json_member(root, "status")), *version = json_text(json_member(root, "version"));
    int code;
    if (root == NULL)
        code = fault("it is not JSON");
    else if (status == NULL || strcmp(status, "completed") != 0)
        code = fault("status is not \"completed\"");
    else if (version == NULL || (strcmp(version, "1.0") != 0 && strcmp(version, "1.2") != 0))
        code = fault("version is neither \"1.0\" nor \"1.2\"");
    else {
        t.pods = strcmp(version, "1.2") == 0;
        code = read_servers(&t);
    }
    *count = t.count;
    json_free(root);
    return code;
}
