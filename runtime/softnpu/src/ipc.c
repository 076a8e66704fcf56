/* Device memory that other processes use. Its owner exports it and gets a key. A process whose number the owner has
 * entered imports it by that key, at an address of its own. A file of the run directory holds what both know of an
 * export; the memory is the owner's arena, mapped once more. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hccl.h"

#define HUGE (2 * MIB)
#define KEY_SIZE 65
#define MOST_PROCESSES 64
#define ANY_PROCESS 0x1u     /* export: no list of processes */
#define ENABLE_PEER 0x1u     /* import: as aclrtDeviceEnablePeerAccess */
#define PATH_SIZE 640

/* An export, as both ends map it. */
struct told {
    char memory[PATH_SIZE];
    uint64_t offset, size, generation;
    int32_t physical, any, closed;
    int32_t allowed[MOST_PROCESSES], importers[MOST_PROCESSES];
};

struct export_of_ours { struct export_of_ours *next; char key[KEY_SIZE]; uintptr_t start; size_t size; struct told *told; };
struct import_of_ours { struct import_of_ours *next; char key[KEY_SIZE]; struct told *told; struct block *block; int slot; };

static struct export_of_ours *exports;
static struct import_of_ours *imports;

/* Addresses at which something was imported once. They are never used for anything else. */
static struct room { struct room *next; uintptr_t start; size_t size; } *rooms;

bool ipc_address(uintptr_t address)
{
    for (const struct room *r = rooms; r != NULL; r = r->next)
        if (address >= r->start && address - r->start < r->size)
            return true;
    return false;
}

bool ipc_exported(uintptr_t start, size_t size)
{
    for (const struct export_of_ours *e = exports; e != NULL; e = e->next)
        if (start < e->start + e->size && e->start < start + size)
            return true;
    return false;
}

static void path_of(const char *key, char path[PATH_SIZE])
{
    snprintf(path, PATH_SIZE, "%s/ipc-%s", settings.directory, key);
}

static struct told *map_told(int file)
{
    void *mapped = mmap(NULL, sizeof(struct told), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static void new_key(char key[KEY_SIZE])
{
    unsigned char bytes[KEY_SIZE / 2] = {0};
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (unsigned char)random_below(256);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(key + 2 * i, 3, "%02x", bytes[i]);
}

/* A key of the program's: text of at most 64 bytes that can be part of a file's name. */
static bool is_key(const char *key)
{
    size_t n = key == NULL ? 0 : strnlen(key, KEY_SIZE);
    return n > 0 && n < KEY_SIZE && strspn(key, "0123456789abcdef") == n;
}

static struct told *make_told(const char *key)
{
    char path[PATH_SIZE];
    path_of(key, path);
    mkdir(settings.directory, 0700);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return NULL;
    struct told *told = ftruncate(file, sizeof *told) == 0 ? map_told(file) : NULL;
    close(file);
    if (told == NULL)
        unlink(path);
    return told;
}

static int export_block(const struct block *block, size_t size, uint64_t flags, char *key)
{
    struct export_of_ours *e = calloc(1, sizeof *e);
    if (e == NULL)
        return ACL_BAD_ALLOC;
    new_key(e->key);
    e->told = make_told(e->key);
    if (e->told == NULL) {
        free(e);
        return call_fail(ACL_RT_INTERNAL_ERROR, "no file for an export in %s: %s", settings.directory, strerror(errno));
    }
    snprintf(e->told->memory, sizeof e->told->memory, "/proc/%d/fd/%d", (int)getpid(), block->arena->fd);
    e->told->offset = block->start - block->arena->visible;
    e->told->size = size;
    e->told->physical = device_physical(block->device);
    e->told->any = (flags & ANY_PROCESS) != 0;
    e->start = block->start;
    e->size = size;
    e->next = exports;
    exports = e;
    memcpy(key, e->key, KEY_SIZE);
    report_live("ipc_exports", 1);
    return 0;
}

aclError aclrtIpcMemGetExportKey(void *devPtr, size_t size, char *key, size_t len, uint64_t flags)
{
    int code = call_begin(SYM_aclrtIpcMemGetExportKey, NEEDS_CONTEXT);
    if (code == 0 && (devPtr == NULL || key == NULL || size == 0 || len != KEY_SIZE || (flags & ~ANY_PROCESS) != 0))
        code = call_fail(ACL_INVALID_PARAM, "a key of %zu bytes, %zu bytes of memory or flags %#lx", len, size, (unsigned long)flags);
    if (code != 0)
        return call_end(code);
    blocks_read();
    const struct block *block = block_at((uintptr_t)devPtr);
    if (block == NULL || block->kind != BLOCK_DEVICE || block->start != (uintptr_t)devPtr || size > block->span)
        code = call_fail(ACL_RT_PARAM_INVALID, "%zu bytes at %p are not an allocation of device memory from its start", size, devPtr);
    else if (ipc_exported(block->start, size))
        code = call_fail(ACL_RT_PARAM_INVALID, "%p is exported already", devPtr);
    else
        code = export_block(block, size, flags, key);
    blocks_unlock();
    return call_end(code);
}

static struct export_of_ours *export_find(const char *key)
{
    struct export_of_ours *e = exports;
    while (e != NULL && strcmp(e->key, key) != 0)
        e = e->next;
    return e;
}

aclError aclrtIpcMemSetImportPid(const char *key, int32_t *pid, size_t num)
{
    int code = call_begin(SYM_aclrtIpcMemSetImportPid, NEEDS_CONTEXT);
    struct export_of_ours *e = code == 0 && is_key(key) ? export_find(key) : NULL;
    if (code == 0 && (e == NULL || pid == NULL || num == 0))
        code = call_fail(ACL_RT_PARAM_INVALID, "no export of this process has that key, or no process is named");
    for (size_t i = 0; code == 0 && i < num; i++) {
        int at = 0, spare = -1;
        for (; at < MOST_PROCESSES && e->told->allowed[at] != pid[i]; at++) {
            int32_t other = e->told->allowed[at];
            if (spare < 0 && (other == 0 || kill(other, 0) != 0))
                spare = at;
        }
        if (at == MOST_PROCESSES && spare < 0)
            code = call_fail(ACL_RT_MEMORY_ALLOCATION, "%d processes are entered, which is the most", MOST_PROCESSES);
        else if (at == MOST_PROCESSES)
            __atomic_store_n(&e->told->allowed[spare], pid[i], __ATOMIC_RELEASE);
    }
    return call_end(code);
}

static bool allowed(const struct told *told)
{
    if (told->any)
        return true;
    for (int i = 0; i < MOST_PROCESSES; i++)
        if (__atomic_load_n(&told->allowed[i], __ATOMIC_ACQUIRE) == getpid())
            return true;
    return false;
}

static int device_of(int physical)
{
    for (int i = 0; i < device_count(); i++)
        if (device_physical(i) == physical)
            return i;
    return -1;
}

/* Returns the slot of this process among those that use an export, or -1 if there is no room. */
static int enter(struct told *told)
{
    for (int i = 0; i < MOST_PROCESSES; i++) {
        int32_t there = __atomic_load_n(&told->importers[i], __ATOMIC_ACQUIRE);
        if ((there == 0 || kill(there, 0) != 0) &&
            __atomic_compare_exchange_n(&told->importers[i], &there, getpid(), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return i;
    }
    return -1;
}

/* Returns an address that cannot be dereferenced, at a multiple of 2 MiB. It is never freed. */
static uintptr_t reserve(size_t size)
{
    struct room *r = calloc(1, sizeof *r);
    unsigned char *p = mmap(NULL, size + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r == NULL || p == MAP_FAILED) {
        free(r);
        return 0;
    }
    *r = (struct room){.next = rooms, .start = ((uintptr_t)p + HUGE - 1) / HUGE * HUGE, .size = size};
    rooms = r;
    return r->start;
}

/* Returns the memory at the address that the software NPU uses. */
static unsigned char *map_memory(const struct told *told)
{
    int file = open(told->memory, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NULL;
    void *mapped = mmap(NULL, told->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, (off_t)told->offset);
    close(file);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static int import_into(struct import_of_ours *in, int device)
{
    struct told *told = in->told;
    struct block *block = in->block;
    *block = (struct block){.size = told->size, .span = told->size, .kind = BLOCK_IMPORTED, .device = device, .page = HUGE};
    block->inner = map_memory(told);
    if (block->inner == NULL)
        return call_fail(ACL_RT_INTERNAL_ERROR, "the memory behind the key: %s", strerror(errno));
    in->slot = enter(told);
    block->start = in->slot < 0 ? 0 : reserve(told->size);
    blocks_write();
    bool placed = block->start != 0 && block_insert(block);
    blocks_unlock();
    if (placed)
        return 0;
    if (in->slot >= 0)
        __atomic_store_n(&told->importers[in->slot], 0, __ATOMIC_RELEASE);
    munmap(block->inner, told->size);
    return call_fail(ACL_RT_MEMORY_ALLOCATION, "no room for what is imported");
}

static struct import_of_ours *import_find(const char *key)
{
    struct import_of_ours *in = imports;
    while (in != NULL && strcmp(in->key, key) != 0)
        in = in->next;
    return in;
}

static struct told *told_of(const char *key)
{
    char path[PATH_SIZE];
    path_of(key, path);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NULL;
    struct stat is;
    struct told *told = fstat(file, &is) == 0 && (size_t)is.st_size >= sizeof *told ? map_told(file) : NULL;
    close(file);
    return told;
}

static int import(const char *key, void **devPtr)
{
    struct import_of_ours *in = calloc(1, sizeof *in);
    struct block *block = calloc(1, sizeof *block);
    struct told *told = told_of(key);
    int code = 0, device = told == NULL ? -1 : device_of(told->physical);
    if (in == NULL || block == NULL)
        code = ACL_BAD_ALLOC;
    else if (told == NULL || __atomic_load_n(&told->closed, __ATOMIC_ACQUIRE) != 0)
        code = call_fail(ACL_RT_PARAM_INVALID, "no memory is exported with this key");
    else if (!allowed(told))
        code = call_fail(ACL_RT_PARAM_INVALID, "process %d is not among those that may import this key", (int)getpid());
    else if (device != context_current()->device)
        code = call_fail(ACL_RT_PARAM_INVALID, "the memory is of physical device %d, and the context of another", told->physical);
    if (code == 0) {
        *in = (struct import_of_ours){.told = told, .block = block};
        snprintf(in->key, sizeof in->key, "%s", key);
        code = import_into(in, device);
    }
    if (code != 0) {
        if (told != NULL)
            munmap(told, sizeof *told);
        free(block);
        free(in);
        return code;
    }
    in->next = imports;
    imports = in;
    *devPtr = (void *)block->start;
    report_live("ipc_imports", 1);
    return 0;
}

aclError aclrtIpcMemImportByKey(void **devPtr, const char *key, uint64_t flags)
{
    int code = call_begin(SYM_aclrtIpcMemImportByKey, NEEDS_CONTEXT);
    if (code == 0 && (devPtr == NULL || !is_key(key) || (flags & ~ENABLE_PEER) != 0))
        code = call_fail(ACL_INVALID_PARAM, "no key of an export, or flags %#lx", (unsigned long)flags);
    if (code == 0 && (import_find(key) != NULL || export_find(key) != NULL))
        code = call_fail(ACL_RT_PARAM_INVALID, "this process has that memory already");
    return call_end(code != 0 ? code : import(key, devPtr));
}

static void leave(struct import_of_ours **at)
{
    struct import_of_ours *in = *at;
    struct block *block = in->block;
    *at = in->next;
    blocks_write();
    block_remove(block->start, BLOCK_IMPORTED);
    if (__atomic_load_n(&block->users, __ATOMIC_ACQUIRE) > 0)
        violation("aclrtIpcMemClose during use: %d tasks still touch %zu bytes that were imported", block->users, block->size);
    blocks_unlock();
    munmap(block->inner, block->size);
    __atomic_store_n(&in->told->importers[in->slot], 0, __ATOMIC_RELEASE);
    munmap(in->told, sizeof *in->told);
    free(block);
    free(in);
    report_live("ipc_imports", -1);
}

static void end_export(struct export_of_ours **at)
{
    struct export_of_ours *e = *at;
    char path[PATH_SIZE];
    *at = e->next;
    __atomic_store_n(&e->told->closed, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < MOST_PROCESSES; i++) {
        int32_t there = __atomic_load_n(&e->told->importers[i], __ATOMIC_ACQUIRE);
        if (there != 0 && kill(there, 0) == 0)
            violation("aclrtIpcMemClose of an export that process %d still has imported", there);
    }
    path_of(e->key, path);
    unlink(path);
    munmap(e->told, sizeof *e->told);
    free(e);
    report_live("ipc_exports", -1);
}

aclError aclrtIpcMemClose(const char *key)
{
    int code = call_begin(SYM_aclrtIpcMemClose, NEEDS_CONTEXT);
    if (code == 0 && !is_key(key))
        code = ACL_INVALID_PARAM;
    if (code != 0)
        return call_end(code);
    struct import_of_ours **in = &imports;
    while (*in != NULL && strcmp((*in)->key, key) != 0)
        in = &(*in)->next;
    struct export_of_ours **out = &exports;
    while (*out != NULL && strcmp((*out)->key, key) != 0)
        out = &(*out)->next;
    if (*in != NULL)
        leave(in);
    else if (*out != NULL)
        end_export(out);
    else
        code = call_fail(ACL_RT_PARAM_INVALID, "this process neither exported nor imported anything with that key");
    return call_end(code);
}

aclError aclrtDeviceGetBareTgid(int32_t *pid)
{
    int code = call_begin(SYM_aclrtDeviceGetBareTgid, NEEDS_INIT);
    if (code == 0 && pid == NULL)
        code = ACL_INVALID_PARAM;
    if (code == 0)
        *pid = getpid();
    return call_end(code);
}
