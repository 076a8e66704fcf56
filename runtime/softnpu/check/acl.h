/* The scenarios of the AscendCL half. */
#ifndef ACL_CHECKS_H
#define ACL_CHECKS_H

#include "check.h"

#define ACL_SCENARIOS(X) \
    X(life_cycle) X(init_file) X(devices) X(thread_without_context) X(messages) X(contexts) \
    X(stream_order) X(asynchronous) X(stream_timeouts) X(failed_task) X(stop_on_failure) X(abort_stream) X(destroy_stream) \
    X(foreign_context) X(bounds) \
    X(event_polarity) X(cross_stream_order) X(elapsed_time) \
    X(allocation) X(out_of_memory) X(strict_memory) X(freed_during_use) X(host_registration) X(watched_memory) X(memory_of_another) \
    X(copy_rules) X(copy_batch) X(many_threads) X(partial_copy) \
    X(call_faults) X(lost_device) X(faults_from_environment) X(leaks) X(layouts)

#define X(name) void name(void);
ACL_SCENARIOS(X)
#undef X

#endif
