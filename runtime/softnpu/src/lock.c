/* The lock, the clock, and random numbers. */
#include <errno.h>
#include <time.h>

#include "npu.h"

#define SECOND INT64_C(1000000000)

pthread_mutex_t npu_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t npu_changed;

static uint64_t random_state = 1;

int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

int64_t after_ms(int64_t ms)
{
    return ms < 0 || ms > INT64_MAX / 2000000 ? FOREVER : now_ns() + ms * 1000000;
}

void condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

__attribute__((constructor)) static void lock_init(void) { condition_init(&npu_changed); }

bool condition_wait(pthread_cond_t *condition, int64_t deadline)
{
    if (deadline == FOREVER)
        return pthread_cond_wait(condition, &npu_lock) == 0;
    struct timespec t = {.tv_sec = deadline / SECOND, .tv_nsec = deadline % SECOND};
    return pthread_cond_timedwait(condition, &npu_lock, &t) != ETIMEDOUT;
}

void random_seed(uint64_t seed) { random_state = seed * 2 + 1; }

/* xorshift64*: repeatable from the seed; nothing else is required. */
uint64_t random_below(uint64_t bound)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    uint64_t drawn = (random_state * UINT64_C(2685821657736338717)) >> 11;
    return bound == 0 ? 0 : drawn % bound;
}

bool random_chance(double p) { return (double)random_below(UINT64_C(1) << 53) < p * (double)(UINT64_C(1) << 53); }
