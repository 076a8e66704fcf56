/* Late landings: requests that a NIC already has may land after their stream was aborted, up to R later, unless the
 * communicator is destroyed first. With beyond_r they land after R whatever was destroyed, which breaks every driver:
 * it proves that a test would notice. */
#include <stdlib.h>
#include <time.h>

#include "hccl.h"

struct landing { struct work *work; int64_t at; bool whatever; };

static void *land(void *argument)
{
    struct landing *landing = argument;
    struct work *work = landing->work;
    int64_t left = landing->at - now_ns();
    struct timespec t = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    if (left > 0)
        nanosleep(&t, NULL);
    work->blind = landing->whatever;
    int code = work_move(work, NULL);
    pthread_mutex_lock(&npu_lock);
    note("an aborted batch landed late: %d", code);
    report_count("late_landings", code == 0);
    work_hold(work, false);
    work_free(work);
    report_live("late_transfers", -1);
    pthread_mutex_unlock(&npu_lock);
    free(landing);
    return NULL;
}

static struct rule *rule_for_late(void)
{
    for (const struct rule *rule = NULL; (rule = fault_rule("late", rule)) != NULL;) {
        const char *p = rule_value(rule, "p");
        if (p == NULL || random_chance(strtod(p, NULL)))
            return (struct rule *)rule;
    }
    return NULL;
}

bool late_takes(struct work *work)
{
    struct rule *rule = work->link->hccs ? NULL : rule_for_late();
    struct landing *landing = rule == NULL ? NULL : calloc(1, sizeof *landing);
    pthread_t thread;
    if (landing == NULL)
        return false;
    int64_t ms = rule_number(rule, "ms", 50), most = residual_ms();
    landing->whatever = rule_number(rule, "beyond_r", 0) != 0;
    ms = landing->whatever ? ms + most : ms < most ? ms : most;
    landing->work = work;
    landing->at = after_ms(ms);
    if (pthread_create(&thread, NULL, land, landing) != 0) {
        free(landing);
        return false;
    }
    pthread_detach(thread);
    rule_note(rule, "an aborted batch will land late");
    report_live("late_transfers", 1);
    return true;
}
