#include "check.h"

static const char *running = "?";

void check_failed(const char *file, int line, const char *what)
{
    const char *text = aclGetRecentErrMsg();
    fprintf(stderr, "%s: %s:%d: %s (last error of this thread: %s)\n", running, file, line, what, text != NULL ? text : "none");
    _exit(1);
}

void check_code(const char *file, int line, const char *what, int wanted, int got)
{
    char text[400];
    if (wanted == got)
        return;
    snprintf(text, sizeof text, "%s gave %d, not %d", what, got, wanted);
    check_failed(file, line, text);
}

void start(void)
{
    int code = aclInit(NULL);
    CHECK(code == 0 || code == 100002);
    OK(aclrtSetDevice(0));
}

static void control(const char *word, const char *argument)
{
    char command[600], reply[400];
    snprintf(command, sizeof command, "%s %s", word, argument);
    if (cannemu_control(command, reply, sizeof reply) < 0)
        check_failed(command, 0, reply);
}

void faults(const char *rules)
{
    control("clear", "");
    control("faults", rules);
}

void set(const char *setting) { control("set", setting); }

static char told[65536];

static const char *ask(const char *what)
{
    if (cannemu_control(what, told, sizeof told) < 0)
        check_failed(what, 0, told);
    return told;
}

void expect_none(void)
{
    const char *list = ask("violations");
    if (list[0] != '\0')
        check_failed("violations", 0, list);
}

void expect_violation(const char *part)
{
    const char *list = ask("violations");
    const char *end = strchr(list, '\n');
    if (end == NULL || end[1] != '\0' || strstr(list, part) == NULL) {
        char text[2000];
        snprintf(text, sizeof text, "wanted one violation with \"%s\", got: %.1500s", part, list);
        check_failed("violations", 0, text);
    }
    control("forget", "");
}

int64_t stat_of(const char *name)
{
    char line[100];
    int length = snprintf(line, sizeof line, "%s=", name);
    for (const char *at = ask("stats"); at != NULL; at = strchr(at, '\n')) {
        at += at != told;
        if (strncmp(at, line, (size_t)length) == 0)
            return strtoll(at + length, NULL, 10);
    }
    return 0;
}

void *device_memory(size_t n)
{
    void *p;
    OK(aclrtMalloc(&p, n, 0));
    return p;
}

void *host_memory(size_t n)
{
    void *p;
    OK(aclrtMallocHost(&p, n));
    return p;
}

void upload(void *device, const void *from, size_t n) { OK(aclrtMemcpy(device, n, from, n, H2D)); }
void download(void *to, const void *device, size_t n) { OK(aclrtMemcpy(to, n, device, n, D2H)); }

void stuck(void *stream, void *device, void *pinned)
{
    int64_t before = stat_of("injected");
    faults("done:hang=1,of=copy");
    OK(aclrtMemcpyAsync(device, 64, pinned, 64, H2D, stream));
    while (stat_of("injected") == before)
        usleep(200); /* until its thread has met the rule; nothing depends on how long that takes */
}

void release(void) { control("release", ""); }

struct body { void (*run)(void *); void *argument; };

static void *body_main(void *argument)
{
    struct body *body = argument;
    body->run(body->argument);
    return NULL;
}

void in_thread(void (*run)(void *), void *argument)
{
    pthread_t thread;
    struct body body = {run, argument};
    CHECK(pthread_create(&thread, NULL, body_main, &body) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

int check_main(int argc, char **argv, const struct scenario *scenarios, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (argc < 2)
            puts(scenarios[i].name);
        else if (strcmp(argv[1], scenarios[i].name) == 0) {
            running = scenarios[i].name;
            scenarios[i].run();
            return 0;
        }
    }
    return argc < 2 ? 0 : (fprintf(stderr, "no scenario %s\n", argv[1]), 2);
}
