/* Counters, violations, the log, and what is alive. A lock of its own, below all others, since violations
 * are found everywhere.
 *
 * With CANNEMU_REPORT=directory, violations, live objects and counters are also kept in files there, named by
 * process id, as they come: a program that ends by a system call or a signal runs no exit handlers. */
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hccl.h"

#define MAX_VIOLATIONS 256
#define LOG_LINES 512
#define LINE 240
#define MAX_COUNTERS 48
#define TABLE_FILE 4096

uint64_t call_counts[SYMBOL_COUNT];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char violations[MAX_VIOLATIONS][LINE], lines[LOG_LINES][LINE];
static size_t violation_count, line_count;
static struct table {
    struct counter { const char *name; int64_t value; } rows[MAX_COUNTERS];
    int digits;
    char *file; /* mapped, TABLE_FILE long; NULL without CANNEMU_REPORT */
} live = {.digits = 10}, counters = {.digits = 18};
static int violations_file = -1, log_file = -1;

static void write_line(int file, const char *line)
{
    char whole[LINE + 1];
    int length = snprintf(whole, sizeof whole, "%.*s\n", LINE - 1, line);
    if (file >= 0 && write(file, whole, (size_t)length) < 0)
        return; /* without room for reports nothing can be reported */
}

static void log_line(const char *line)
{
    snprintf(lines[line_count++ % LOG_LINES], LINE, "%s", line);
    write_line(log_file, line);
}

void note(const char *format, ...)
{
    char line[LINE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&lock);
    log_line(line);
    pthread_mutex_unlock(&lock);
}

void violation(const char *format, ...)
{
    char line[LINE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&lock);
    if (violation_count < MAX_VIOLATIONS)
        memcpy(violations[violation_count], line, LINE);
    violation_count++;
    write_line(violations_file, line);
    log_line(line);
    pthread_mutex_unlock(&lock);
}

static struct counter *counter(struct table *table, const char *name)
{
    for (size_t i = 0; i < MAX_COUNTERS; i++) {
        if (table->rows[i].name == NULL)
            table->rows[i].name = name;
        if (strcmp(table->rows[i].name, name) == 0)
            return &table->rows[i];
    }
    return NULL;
}

/* Lines of a fixed length for each name: a reader after a kill finds no half line except the last. */
static void write_table(const struct table *table)
{
    size_t at = 0;
    for (size_t i = 0; table->file != NULL && i < MAX_COUNTERS && table->rows[i].name != NULL; i++) {
        char line[80];
        int length = snprintf(line, sizeof line, "%s=%0*lld\n", table->rows[i].name, table->digits, (long long)table->rows[i].value);
        if (at + (size_t)length > TABLE_FILE)
            return;
        memcpy(table->file + at, line, (size_t)length);
        at += (size_t)length;
    }
}

void report_live(const char *name, int64_t change)
{
    pthread_mutex_lock(&lock);
    struct counter *c = counter(&live, name);
    if (c != NULL)
        c->value += change;
    write_table(&live);
    pthread_mutex_unlock(&lock);
}

void report_count(const char *name, uint64_t more)
{
    pthread_mutex_lock(&lock);
    struct counter *c = counter(&counters, name);
    if (c != NULL)
        c->value += (int64_t)more;
    write_table(&counters);
    pthread_mutex_unlock(&lock);
}

void report_high(const char *name, uint64_t value)
{
    pthread_mutex_lock(&lock);
    struct counter *c = counter(&counters, name);
    if (c != NULL && c->value < (int64_t)value)
        c->value = (int64_t)value;
    write_table(&counters);
    pthread_mutex_unlock(&lock);
}

static int open_report(const char *kind, int flags)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%d.%s", settings.report, (int)getpid(), kind);
    return open(path, O_CREAT | O_CLOEXEC | flags, 0600);
}

static void open_table(struct table *table, const char *kind)
{
    int file = open_report(kind, O_RDWR);
    if (file < 0)
        return;
    void *mapped = ftruncate(file, TABLE_FILE) == 0 ? mmap(NULL, TABLE_FILE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    close(file);
    if (mapped != MAP_FAILED)
        table->file = mapped;
}

void report_open(void)
{
    if (settings.log[0] != '\0' && log_file < 0)
        log_file = strcmp(settings.log, "stderr") == 0 ? STDERR_FILENO
                                                        : open(settings.log, O_CREAT | O_CLOEXEC | O_APPEND | O_WRONLY, 0600);
    if (settings.report[0] == '\0' || live.file != NULL)
        return;
    violations_file = open_report("violations", O_APPEND | O_WRONLY);
    open_table(&live, "live");
    open_table(&counters, "stats");
}

void report_stats(FILE *out)
{
    pthread_mutex_lock(&lock);
    fprintf(out, "seed=%lld\n", (long long)settings.seed);
    for (size_t i = 0; i < SYMBOL_COUNT; i++)
        if (call_counts[i] > 0)
            fprintf(out, "calls.%s=%llu\n", symbol_name((enum symbol)i), (unsigned long long)call_counts[i]);
    for (size_t i = 0; i < MAX_COUNTERS && counters.rows[i].name != NULL; i++)
        fprintf(out, "%s=%lld\n", counters.rows[i].name, (long long)counters.rows[i].value);
    for (size_t i = 0; i < MAX_COUNTERS && live.rows[i].name != NULL; i++)
        fprintf(out, "live.%s=%lld\n", live.rows[i].name, (long long)live.rows[i].value);
    fprintf(out, "violations=%zu\n", violation_count);
    fprintf(out, "arriving=%u\n", share_arriving());
    pthread_mutex_unlock(&lock);
    faults_report(out);
}

void report_violations(FILE *out)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < violation_count && i < MAX_VIOLATIONS; i++)
        fprintf(out, "%s\n", violations[i]);
    if (violation_count > MAX_VIOLATIONS)
        fprintf(out, "and %zu more\n", violation_count - MAX_VIOLATIONS);
    pthread_mutex_unlock(&lock);
}

void report_log(FILE *out)
{
    pthread_mutex_lock(&lock);
    for (size_t i = line_count > LOG_LINES ? line_count - LOG_LINES : 0; i < line_count; i++)
        fprintf(out, "%s\n", lines[i % LOG_LINES]);
    pthread_mutex_unlock(&lock);
}

size_t report_leaks(FILE *out)
{
    size_t kinds = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < MAX_COUNTERS && live.rows[i].name != NULL; i++)
        if (live.rows[i].value != 0) {
            fprintf(out, "%s=%lld\n", live.rows[i].name, (long long)live.rows[i].value);
            kinds++;
        }
    pthread_mutex_unlock(&lock);
    return kinds;
}

void report_forget(void)
{
    pthread_mutex_lock(&lock);
    violation_count = 0;
    memset(counters.rows, 0, sizeof counters.rows);
    if (counters.file != NULL)
        memset(counters.file, 0, TABLE_FILE);
    memset(call_counts, 0, sizeof call_counts);
    pthread_mutex_unlock(&lock);
}

/* The last report of a program that ends normally, or calls dlclose. */
__attribute__((destructor)) static void report_end(void)
{
    char text[1024] = "";
    FILE *out = fmemopen(text, sizeof text - 1, "w");
    if (out == NULL)
        return;
    size_t kinds = report_leaks(out);
    fclose(out);
    for (char *at = text; kinds > 0 && (at = strchr(at, '\n')) != NULL;)
        *at = ' ';
    if (kinds > 0)
        note("alive at the end: %s", text);
}
