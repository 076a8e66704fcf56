/* cannemu_control: the commands and queries of tests. */
#include <stdlib.h>
#include <string.h>

#include "npu.h"
#include "watch.h"

static bool do_stats(const char *argument, FILE *out)
{
    (void)argument;
    report_stats(out);
    return true;
}

static bool do_violations(const char *argument, FILE *out)
{
    (void)argument;
    watch_hear();
    report_violations(out);
    return true;
}

static bool do_leaks(const char *argument, FILE *out)
{
    (void)argument;
    report_leaks(out);
    return true;
}

static bool do_log(const char *argument, FILE *out)
{
    (void)argument;
    report_log(out);
    return true;
}

static bool do_forget(const char *argument, FILE *out)
{
    (void)argument, (void)out;
    report_forget();
    return true;
}

static bool do_faults(const char *argument, FILE *out)
{
    char problem[300] = "";
    if (faults_add(argument, problem, sizeof problem))
        return true;
    fprintf(out, "%s", problem);
    return false;
}

static bool do_clear(const char *argument, FILE *out)
{
    (void)argument, (void)out;
    faults_clear();
    return true;
}

static bool do_release(const char *argument, FILE *out)
{
    (void)argument, (void)out;
    tasks_release();
    return true;
}

static bool do_set(const char *argument, FILE *out)
{
    char name[64] = "";
    const char *value = strchr(argument, '=');
    if (value != NULL && (size_t)(value - argument) < sizeof name) {
        memcpy(name, argument, (size_t)(value - argument));
        if (settings_set(name, value + 1))
            return true;
    }
    fprintf(out, "set %s: no such setting, or not a value for it", argument);
    return false;
}

static bool do_watch(const char *argument, FILE *out)
{
    char *rest;
    uintptr_t start = strtoull(argument, &rest, 0);
    size_t length = strtoull(rest, NULL, 0);
    if (start != 0 && length != 0 && watch_add(start, length))
        return true;
    fprintf(out, "watch %s: want an address and a length, and room for one more", argument);
    return false;
}

static bool do_unwatch(const char *argument, FILE *out)
{
    if (watch_remove(strtoull(argument, NULL, 0)))
        return true;
    fprintf(out, "unwatch %s: not watched", argument);
    return false;
}

static const struct { const char *word; bool (*act)(const char *argument, FILE *out); } commands[] = {
    {"stats", do_stats}, {"violations", do_violations}, {"leaks", do_leaks}, {"log", do_log}, {"forget", do_forget},
    {"faults", do_faults}, {"clear", do_clear}, {"release", do_release}, {"set", do_set}, {"watch", do_watch}, {"unwatch", do_unwatch},
};

static int give(const char *text, size_t length, char *reply, size_t room)
{
    if (reply != NULL && room > 0) {
        size_t part = length < room - 1 ? length : room - 1;
        memcpy(reply, text, part);
        reply[part] = '\0';
    }
    return (int)length;
}

/* Returns the length of the whole reply, of which as much is stored as there is room for. Returns -1 if the command is
 * unknown; then the reply says why. */
int cannemu_control(const char *command, char *reply, size_t replyLen)
{
    char *text = NULL;
    size_t length = 0;
    bool done = false;
    FILE *out = command == NULL ? NULL : open_memstream(&text, &length);
    if (out == NULL)
        return -1;
    size_t word = strcspn(command, " ");
    const char *argument = command + word + (command[word] == ' ');
    pthread_mutex_lock(&npu_lock);
    settings_load();
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strlen(commands[i].word) == word && strncmp(commands[i].word, command, word) == 0)
            done = commands[i].act(argument, out);
    pthread_mutex_unlock(&npu_lock);
    fclose(out);
    int given = give(text, length, reply, replyLen);
    free(text);
    return done ? given : -1;
}
