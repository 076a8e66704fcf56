#ifndef WATCH_H
#define WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool watch_add(uintptr_t start, size_t length); /* false: too many */
void watch_hear(void); /* reports what peers wrote into watched memory since the last time */
bool watch_remove(uintptr_t start); /* false: not watched */

#endif
