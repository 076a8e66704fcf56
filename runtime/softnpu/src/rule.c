/* Fault rules as text: target:key=value,...;... Read whole before any takes effect. */
#include <stdlib.h>
#include <string.h>

#include "npu.h"

#define MAX_RULES 64
#define MAX_KEYS 8

struct rule {
    char text[256], storage[256];
    const char *target, *keys[MAX_KEYS], *values[MAX_KEYS];
    size_t key_count;
    uint64_t seen, hits, sum;
};

static struct rule rules[MAX_RULES];
static size_t rule_count;

/* The keys of each target. A mistyped rule without effect would make a test that tests nothing. */
static const struct { const char *target, *keys; } grammar[] = {
    {"call", " sym nth count code msg block p "}, {"oom", " device host after code "},
    {"done", " delay jitter hang fail partial bytes code of "}, {"link", " peer down_after_ops down_after_bytes links mode up code "},
    {"late", " ms p beyond_r "}, {"pieces", " reorder "}, {"device", " lost "}, {"prepare", " delay fail code "},
    {"destroy", " busy "}, {"soc", " name "}, {"version", " acl "}, {"limit", " streams events desc queue "}, {"seed", " value "},
};

static bool known(const char *target, const char *key)
{
    char word[40];
    snprintf(word, sizeof word, " %s ", key);
    for (size_t i = 0; i < sizeof grammar / sizeof *grammar; i++)
        if (strcmp(grammar[i].target, target) == 0)
            return key[0] == '\0' || strstr(grammar[i].keys, word) != NULL;
    return false;
}

static bool split(struct rule *rule)
{
    char *body = strchr(rule->storage, ':'), *rest = NULL;
    rule->target = rule->storage;
    if (body == NULL)
        return false;
    *body++ = '\0';
    if (strcmp(rule->target, "seed") == 0) {
        rule->keys[rule->key_count] = "value";
        rule->values[rule->key_count++] = body;
        return true;
    }
    for (char *part = strtok_r(body, ",", &rest); part != NULL; part = strtok_r(NULL, ",", &rest)) {
        if (rule->key_count == MAX_KEYS)
            return false;
        char *value = strchr(part, '=');
        if (value != NULL)
            *value++ = '\0';
        rule->keys[rule->key_count] = part;
        rule->values[rule->key_count++] = value != NULL ? value : "1";
        if (!known(rule->target, part))
            return false;
    }
    return known(rule->target, "");
}

/* Symbols are hidden when the library is linked: a rule cannot hide one that the loader has resolved. */
static bool parse(struct rule *rule, const char *text, size_t length, char *problem, size_t size)
{
    *rule = (struct rule){0};
    if (length >= sizeof rule->text) {
        snprintf(problem, size, "a rule of %zu characters; at most %zu", length, sizeof rule->text - 1);
        return false;
    }
    memcpy(rule->text, text, length);
    memcpy(rule->storage, text, length);
    if (split(rule))
        return true;
    snprintf(problem, size, strncmp(rule->text, "hide:", 5) == 0 ? "%s: symbols are hidden when the library is built"
                                                                   : "%s: not a rule target:key=value,...", rule->text);
    return false;
}

static size_t parse_all(struct rule *into, size_t room, const char *text, char *problem, size_t size)
{
    size_t count = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, ";");
        const char *start = text + strspn(text, " ");
        if (start < text + length) {
            if (count == room) {
                snprintf(problem, size, "more than %d rules", MAX_RULES);
                return SIZE_MAX;
            }
            if (!parse(&into[count], start, length - (size_t)(start - text), problem, size))
                return SIZE_MAX;
            count++;
        }
        text += length + (text[length] == ';');
    }
    return count;
}

/* Rules contain pointers into themselves, so they must not move after parsing. */
bool faults_add(const char *text, char *problem, size_t size)
{
    size_t more = parse_all(rules + rule_count, MAX_RULES - rule_count, text, problem, size);
    if (more == SIZE_MAX)
        return false;
    for (size_t i = 0; i < more; i++)
        if (strcmp(rules[rule_count + i].target, "seed") == 0)
            settings_set("seed", rules[rule_count + i].values[0]);
    rule_count += more;
    return true;
}

void faults_clear(void) { rule_count = 0; }

const struct rule *fault_rule(const char *target, const struct rule *after)
{
    for (const struct rule *rule = after == NULL ? rules : after + 1; rule < rules + rule_count; rule++)
        if (strcmp(rule->target, target) == 0)
            return rule;
    return NULL;
}

const char *rule_value(const struct rule *rule, const char *key)
{
    for (size_t i = 0; i < rule->key_count; i++)
        if (strcmp(rule->keys[i], key) == 0)
            return rule->values[i];
    return NULL;
}

int64_t rule_number(const struct rule *rule, const char *key, int64_t otherwise)
{
    const char *value = rule_value(rule, key);
    return value == NULL ? otherwise : strtoll(value, NULL, 10);
}

const char *rule_text(const struct rule *rule) { return rule->text; }

bool rule_hit(struct rule *rule, const char *key)
{
    const char *value = rule_value(rule, key);
    rule->seen++;
    return value != NULL && (strcmp(value, "*") == 0 || strtoull(value, NULL, 10) == rule->seen);
}

uint64_t rule_seen(struct rule *rule) { return ++rule->seen; }
uint64_t rule_hits(const struct rule *rule) { return rule->hits; }
uint64_t rule_add(struct rule *rule, uint64_t more) { return rule->sum += more; }

void rule_note(struct rule *rule, const char *what)
{
    rule->hits++;
    report_count("injected", 1);
    note("fault %s: %s", rule->text, what);
}

void faults_report(FILE *out)
{
    for (size_t i = 0; i < rule_count; i++)
        fprintf(out, "injected[%s]=%llu\n", rules[i].text, (unsigned long long)rules[i].hits);
}
