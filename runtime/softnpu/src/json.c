/* JSON, as far as a rank table needs it: the whole grammar, parsed strictly. Numbers and words are kept as text that is
 * not a string, so that "all numbers are strings" can be checked. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "hccl.h"

#define MAX_DEPTH 16

enum json_kind { JSON_OBJECT, JSON_ARRAY, JSON_STRING, JSON_OTHER };

struct json { enum json_kind kind; char *name, *text; struct json *first, *next; };

struct reader { const char *at; int depth; };

static struct json *read_value(struct reader *r);

static void skip(struct reader *r) { r->at += strspn(r->at, " \t\r\n"); }

static bool take(struct reader *r, char c)
{
    skip(r);
    if (*r->at != c)
        return false;
    r->at++;
    return true;
}

/* Escapes other than of a quote, slash or backslash do not occur in a rank table. */
static char *read_string(struct reader *r)
{
    if (!take(r, '"'))
        return NULL;
    char *text = malloc(strlen(r->at) + 1), *to = text;
    if (text == NULL)
        return NULL;
    for (; *r->at != '"'; r->at++) {
        if (*r->at == '\\' && strchr("\"\\/", r->at[1]) != NULL && r->at[1] != '\0')
            r->at++;
        else if (*r->at == '\\' || (unsigned char)*r->at < ' ') {
            free(text);
            return NULL;
        }
        *to++ = *r->at;
    }
    *to = '\0';
    r->at++;
    return text;
}

void json_free(struct json *json)
{
    while (json != NULL) {
        struct json *next = json->next;
        json_free(json->first);
        free(json->name);
        free(json->text);
        free(json);
        json = next;
    }
}

/* The elements of an object or array, up to its closing character. */
static bool read_elements(struct reader *r, struct json *into, char close)
{
    struct json **tail = &into->first;
    if (take(r, close))
        return true;
    do {
        char *name = NULL;
        if (into->kind == JSON_OBJECT && ((name = read_string(r)) == NULL || !take(r, ':'))) {
            free(name);
            return false;
        }
        *tail = read_value(r);
        if (*tail == NULL) {
            free(name);
            return false;
        }
        (*tail)->name = name;
        tail = &(*tail)->next;
    } while (take(r, ','));
    return take(r, close);
}

static bool read_into(struct reader *r, struct json *value)
{
    if (take(r, '{')) {
        value->kind = JSON_OBJECT;
        return read_elements(r, value, '}');
    }
    if (take(r, '[')) {
        value->kind = JSON_ARRAY;
        return read_elements(r, value, ']');
    }
    skip(r);
    if (*r->at == '"') {
        value->kind = JSON_STRING;
        return (value->text = read_string(r)) != NULL;
    }
    size_t length = strcspn(r->at, ",]} \t\r\n");
    value->kind = JSON_OTHER;
    r->at += length;
    return length > 0 && (isalnum((unsigned char)r->at[-1]) != 0);
}

static struct json *read_value(struct reader *r)
{
    struct json *value = calloc(1, sizeof *value);
    bool whole = value != NULL && r->depth < MAX_DEPTH;
    r->depth++;
    whole = whole && read_into(r, value);
    r->depth--;
    if (whole)
        return value;
    json_free(value);
    return NULL;
}

struct json *json_parse(const char *text)
{
    struct reader r = {.at = text};
    struct json *json = read_value(&r);
    skip(&r);
    if (json == NULL || *r.at == '\0')
        return json;
    json_free(json);
    return NULL;
}

const struct json *json_member(const struct json *object, const char *name)
{
    if (object == NULL || object->kind != JSON_OBJECT)
        return NULL;
    for (const struct json *m = object->first; m != NULL; m = m->next)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}

const char *json_text(const struct json *value) { return value != NULL && value->kind == JSON_STRING ? value->text : NULL; }

const struct json *json_first(const struct json *array) { return array != NULL && array->kind == JSON_ARRAY ? array->first : NULL; }

const struct json *json_next(const struct json *element) { return element->next; }
