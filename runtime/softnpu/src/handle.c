/* Handles: kind, generation and index in one word. Its upper byte makes it an invalid address, so dereferencing a
 * handle crashes; a destroyed or invented handle is detected here. */
#include <stdlib.h>

#include "npu.h"

#define INDEX_BITS 20
#define GENERATION_BITS 32

struct slot { enum object_kind kind; uint32_t generation; void *object; };

static struct slot *slots;
static size_t slot_count, slot_room, free_hint;

static const char *const kind_names[OBJECT_KINDS] = {
    [OBJECT_CONTEXT] = "contexts", [OBJECT_STREAM] = "streams", [OBJECT_EVENT] = "events",
    [OBJECT_REGISTRATION] = "registrations", [OBJECT_COMMUNICATOR] = "communicators",
};

static bool grow(void)
{
    if (slot_room >> INDEX_BITS != 0)
        return false;
    size_t room = slot_room == 0 ? 64 : slot_room * 2;
    struct slot *more = realloc(slots, room * sizeof *more);
    if (more == NULL)
        return false;
    slots = more;
    slot_room = room;
    return true;
}

static size_t free_slot(void)
{
    for (; free_hint < slot_count; free_hint++)
        if (slots[free_hint].object == NULL)
            return free_hint;
    if (slot_count == slot_room && !grow())
        return SIZE_MAX;
    slots[slot_count] = (struct slot){0};
    return slot_count++;
}

void *handle_new(enum object_kind kind, void *object)
{
    size_t index = free_slot();
    if (index == SIZE_MAX)
        return NULL;
    struct slot *slot = &slots[index];
    slot->kind = kind;
    slot->generation++;
    slot->object = object;
    report_live(kind_names[kind], 1);
    return (void *)((uintptr_t)kind << 56 | (uintptr_t)slot->generation << INDEX_BITS | index);
}

static struct slot *slot_of(const void *handle)
{
    uintptr_t bits = (uintptr_t)handle;
    size_t index = bits & ((1u << INDEX_BITS) - 1);
    if (index >= slot_count || slots[index].object == NULL)
        return NULL;
    struct slot *slot = &slots[index];
    bool same = bits >> 56 == slot->kind && (bits >> INDEX_BITS & UINT32_MAX) == slot->generation &&
                (bits >> (INDEX_BITS + GENERATION_BITS) & 0xf) == 0;
    return same ? slot : NULL;
}

void *handle_find(enum object_kind kind, const void *handle)
{
    struct slot *slot = slot_of(handle);
    return slot != NULL && slot->kind == kind ? slot->object : NULL;
}

void handle_remove(const void *handle)
{
    struct slot *slot = slot_of(handle);
    if (slot == NULL)
        return;
    report_live(kind_names[slot->kind], -1);
    slot->object = NULL;
    if ((size_t)(slot - slots) < free_hint)
        free_hint = (size_t)(slot - slots);
}

void *handle_next(enum object_kind kind, size_t *cursor)
{
    while (*cursor < slot_count) {
        struct slot *slot = &slots[(*cursor)++];
        if (slot->object != NULL && slot->kind == kind)
            return slot->object;
    }
    return NULL;
}
