/* The beginning and end of every exported function, and the error text that a thread gets. */
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "npu.h"

__thread void *thread_context;

/* given is what the last aclGetRecentErrMsg returned. The next call of the thread overwrites it, as the vendor's
 * library may: a program that keeps the pointer instead of a copy then reads nonsense here too, and not only on
 * hardware. */
static __thread struct { char pending[512], given[512]; bool has_text; int last; enum symbol symbol; } thread;

static const char *const names[SYMBOL_COUNT] = {
#define X(name) [SYM_##name] = #name,
    SYMBOLS(X)
#undef X
};

const char *symbol_name(enum symbol symbol) { return names[symbol]; }

const char *acl_name(int code)
{
    switch (code) {
#define X(code, name) case code: return "ACL_ERROR_" #name;
    ACL_CODES(X)
#undef X
    }
    return "unknown";
}

static void set_text(const char *format, va_list arguments)
{
    vsnprintf(thread.pending, sizeof thread.pending, format, arguments);
    thread.has_text = true;
}

int call_fail(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_text(format, arguments);
    va_end(arguments);
    return code;
}

static void sleep_unlocked(int64_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    pthread_mutex_unlock(&npu_lock);
    nanosleep(&t, NULL);
    pthread_mutex_lock(&npu_lock);
}

static int injected(enum symbol symbol)
{
    int64_t block_ms = 0;
    const char *text = NULL;
    int code = fault_call(symbol, &block_ms, &text);
    if (text != NULL)
        call_fail(code, "%s", text);
    if (block_ms > 0)
        sleep_unlocked(block_ms);
    return code;
}

static int check_context(enum symbol symbol)
{
    if (thread_context == NULL && default_device() >= 0) {
        int code = context_use_device(default_device());
        if (code != 0)
            return code;
    }
    if (thread_context == NULL)
        return call_fail(ACL_RT_CONTEXT_NULL, "%s: this thread has no current context", names[symbol]);
    struct context *context = context_current();
    if (context == NULL)
        return call_fail(ACL_RT_INVALID_HANDLE, "%s: this thread's current context was destroyed", names[symbol]);
    if (device_lost(context->device))
        return call_fail(ACL_RT_LOST_HEARTBEAT, "%s: device %d is lost", names[symbol], context->device);
    return 0;
}

int call_begin(enum symbol symbol, enum needs needs)
{
    pthread_mutex_lock(&npu_lock);
    settings_load();
    call_counts[symbol]++;
    thread.symbol = symbol;
    if (symbol != SYM_aclGetRecentErrMsg) {
        memset(thread.given, '#', sizeof thread.given - 1);
        thread.has_text = false;
    }
    int code = injected(symbol);
    if (code == 0 && needs != NEEDS_NOTHING && settings.strict_init != 0 && !acl_initialised())
        code = call_fail(ACL_UNINITIALIZE, "%s: aclInit was not called", names[symbol]);
    if (code == 0 && needs == NEEDS_CONTEXT)
        code = check_context(symbol);
    return code;
}

int call_end(int code)
{
    if (code != 0) {
        thread.last = code;
        if (!thread.has_text)
            call_fail(code, "%s: %d (%s)", names[thread.symbol], code, acl_name(code));
    }
    pthread_mutex_unlock(&npu_lock);
    return code;
}

const char *thread_take_text(void)
{
    if (!thread.has_text)
        return NULL;
    memcpy(thread.given, thread.pending, sizeof thread.given);
    thread.has_text = false;
    return thread.given;
}

int thread_last_error(bool clear)
{
    int code = thread.last;
    if (clear)
        thread.last = 0;
    return code;
}
