/* The effect of fault rules on a call, an allocation or a task. */
#include <stdlib.h>
#include <string.h>

#include "npu.h"

int64_t fault_number(const char *target, const char *key, int64_t otherwise)
{
    for (const struct rule *rule = NULL; (rule = fault_rule(target, rule)) != NULL;)
        otherwise = rule_number(rule, key, otherwise);
    return otherwise;
}

/* Whether this call of the symbol counts for the rule, and is one that it hits. */
static bool call_is_hit(struct rule *rule, const char *name)
{
    const char *symbol = rule_value(rule, "sym"), *nth = rule_value(rule, "nth"), *chance = rule_value(rule, "p");
    if (symbol == NULL || (strcmp(symbol, "*") != 0 && strcmp(symbol, name) != 0))
        return false;
    uint64_t seen = rule_seen(rule);
    if (chance != NULL)
        return random_chance(strtod(chance, NULL));
    if (nth != NULL && strcmp(nth, "*") == 0)
        return true;
    uint64_t first = (uint64_t)rule_number(rule, "nth", 1), count = (uint64_t)rule_number(rule, "count", 1);
    return seen >= first && seen - first < count;
}

int fault_call(enum symbol symbol, int64_t *block_ms, const char **text)
{
    int code = 0;
    for (const struct rule *next = NULL; (next = fault_rule("call", next)) != NULL;) {
        struct rule *rule = (struct rule *)next;
        if (!call_is_hit(rule, symbol_name(symbol)))
            continue;
        rule_note(rule, symbol_name(symbol));
        *block_ms += rule_number(rule, "block", 0);
        if (code == 0) {
            code = (int)rule_number(rule, "code", 0);
            *text = rule_value(rule, "msg");
        }
    }
    return code;
}

int fault_oom(int device, size_t used, size_t more)
{
    for (const struct rule *next = NULL; (next = fault_rule("oom", next)) != NULL;) {
        struct rule *rule = (struct rule *)next;
        bool meant = device < 0 ? rule_value(rule, "host") != NULL : rule_number(rule, "device", -1) == device;
        if (!meant || used + more <= (uint64_t)rule_number(rule, "after", 0))
            continue;
        rule_note(rule, device < 0 ? "host memory" : "device memory");
        return (int)rule_number(rule, "code", ACL_RT_MEMORY_ALLOCATION);
    }
    return 0;
}

/* A done rule applies to batches of HCCL unless it says of=copy or of=any. */
static bool concerns(const struct rule *rule, enum task_sort sort)
{
    const char *of = rule_value(rule, "of");
    if (of == NULL || strcmp(of, "batch") == 0)
        return sort == TASK_BATCH;
    return strcmp(of, "any") == 0 || sort == TASK_COPY;
}

static void strike(struct rule *rule, struct task_fault *fault)
{
    fault->rule = rule_text(rule);
    if (rule_value(rule, "delay") != NULL || rule_value(rule, "jitter") != NULL)
        fault->delay_us += rule_number(rule, "delay", 0) + (int64_t)random_below((uint64_t)rule_number(rule, "jitter", 0) + 1);
    if (rule_value(rule, "hang") != NULL && rule_hit(rule, "hang")) {
        fault->hang = true;
        rule_note(rule, "a transfer hangs");
    }
    if (rule_value(rule, "fail") != NULL && rule_hit(rule, "fail")) {
        fault->code = (int)rule_number(rule, "code", ACL_RT_SUSPECT_REMOTE_ERROR);
        fault->bytes = random_below(64 * KIB); /* it is unknown how far it came */
        rule_note(rule, "a transfer fails");
    }
    if (rule_value(rule, "partial") != NULL && rule_hit(rule, "partial")) {
        fault->code = (int)rule_number(rule, "code", ACL_RT_SUSPECT_REMOTE_ERROR);
        fault->bytes = (uint64_t)rule_number(rule, "bytes", 0);
        rule_note(rule, "a transfer fails after a part");
    }
}

void fault_task(enum task_sort sort, struct task_fault *fault)
{
    for (const struct rule *rule = NULL; (rule = fault_rule("done", rule)) != NULL;)
        if (concerns(rule, sort))
            strike((struct rule *)rule, fault);
}
