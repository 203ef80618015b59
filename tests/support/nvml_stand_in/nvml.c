/* A libnvidia-ml.so.1 for machines without a GPU: answers what a script says.
 *
 * The script is the file named by NVML_STAND_IN; it is read again at each nvmlDeviceGetCount, so
 * that a test can change the world between two collections. Its lines:
 *
 *   gpus 2                             how many there are; 0 is possible
 *   driver 570.158.01
 *   cost FUNCTION MICROSECONDS         each call takes so long
 *   DEVICE KEY VALUE...                what a device answers
 *
 * DEVICE is an index (0) or a MIG device of it (0:1). KEY is the function's name, with its
 * arguments after dots where it has any (nvmlDeviceGetClockInfo.1). A key that is not there is
 * answered with "not supported". Special values: "lost" (the GPU falls off the bus at this very
 * call and stays away), "hang" (the call never returns), "error N".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NOT_LOADED = 9,
       TIMEOUT = 10, LOST = 15 };
enum { MAX_DEVICES = 256, MAX_LINES = 8192 };
typedef unsigned int u32;
typedef unsigned long long u64;

typedef struct { char name[16]; int lost; } Device;
static Device devices[MAX_DEVICES];
static int device_count;
static struct { char device[16], key[96], value[160]; } lines[MAX_LINES];
static int line_count;

static Device *device_named(const char *name) {
    for (int i = 0; i < device_count; i++)
        if (!strcmp(devices[i].name, name)) return &devices[i];
    if (device_count == MAX_DEVICES) abort();
    snprintf(devices[device_count].name, sizeof devices[0].name, "%s", name);
    return &devices[device_count++];
}

static void read_script(void) {
    const char *path = getenv("NVML_STAND_IN");
    FILE *file = path ? fopen(path, "r") : NULL;
    char text[512];
    line_count = 0;
    if (!file) return;
    while (line_count < MAX_LINES && fgets(text, sizeof text, file)) {
        char *end = text + strcspn(text, "\n");
        *end = 0;
        lines[line_count].value[0] = 0;
        if (sscanf(text, "%15s %95s %159[^\n]", lines[line_count].device, lines[line_count].key,
                   lines[line_count].value) >= 2)
            line_count++;
    }
    fclose(file);
}

static const char *find(const char *device, const char *key) {
    for (int i = 0; i < line_count; i++)
        if (!strcmp(lines[i].device, device) && !strcmp(lines[i].key, key)) return lines[i].value;
    return NULL;
}

static int ask(Device *device, const char *key, const char **value) {
    char function[96];
    snprintf(function, sizeof function, "%.*s", (int)strcspn(key, "."), key);
    const char *cost = find("cost", function);
    if (cost) usleep(atoi(cost));
    if (device->lost) return LOST;
    *value = find(device->name, key);
    if (!*value) return NOT_SUPPORTED;
    if (!strcmp(*value, "lost")) { device->lost = 1; return LOST; }
    if (!strcmp(*value, "hang")) for (;;) pause();
    if (!strncmp(*value, "error ", 6)) return atoi(*value + 6);
    return OK;
}

static int number(Device *device, const char *key, u64 *out) {
    const char *value;
    int result = ask(device, key, &value);
    if (result == OK) *out = strtoull(value, NULL, 10);
    return result;
}

static int small(Device *device, const char *key, u32 *out) {
    u64 value = 0;
    int result = number(device, key, &value);
    if (result == OK) *out = (u32)value;
    return result;
}

static int text(Device *device, const char *key, char *out, u32 size) {
    const char *value;
    int result = ask(device, key, &value);
    if (result == OK) snprintf(out, size, "%s", value);
    return result;
}

static int with(Device *device, const char *function, int a, int b, u64 *out) {
    char key[96];
    if (b < 0) snprintf(key, sizeof key, "%s.%d", function, a);
    else snprintf(key, sizeof key, "%s.%d.%d", function, a, b);
    return number(device, key, out);
}

#define SMALL(name) int name(Device *device, u32 *out) { return small(device, #name, out); }
#define LARGE(name) int name(Device *device, u64 *out) { return number(device, #name, out); }
#define SMALL_OF(name) int name(Device *device, u32 which, u32 *out) { \
    return small_of(device, #name, which, out); }

static int small_of(Device *device, const char *function, u32 which, u32 *out) {
    u64 value = 0;
    int result = with(device, function, (int)which, -1, &value);
    if (result == OK) *out = (u32)value;
    return result;
}

static const char *global(const char *key) {
    for (int i = 0; i < line_count; i++)
        if (!strcmp(lines[i].device, key)) return lines[i].key;
    return NULL;
}

int nvmlInitWithFlags(u32 flags) {
    (void)flags;
    read_script();
    const char *state = global("driver");
    return state && !strcmp(state, "absent") ? NOT_LOADED : OK;
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int result) { (void)result; return "an error of the stand-in"; }
int nvmlSystemGetDriverVersion(char *out, u32 size) {
    const char *version = global("driver");
    if (!version) return NOT_SUPPORTED;
    snprintf(out, size, "%s", version);
    return OK;
}
int nvmlDeviceGetCount_v2(u32 *count) {
    read_script();
    const char *value = global("gpus");
    *count = value ? (u32)atoi(value) : 0;
    return OK;
}
int nvmlDeviceGetHandleByIndex_v2(u32 index, Device **out) {
    char name[16];
    snprintf(name, sizeof name, "%u", index);
    *out = device_named(name);
    return (*out)->lost ? LOST : OK;
}
int nvmlDeviceGetName(Device *d, char *out, u32 size) { return text(d, "nvmlDeviceGetName", out, size); }
int nvmlDeviceGetUUID(Device *d, char *out, u32 size) { return text(d, "nvmlDeviceGetUUID", out, size); }

typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(Device *d, Pci *out) {
    memset(out, 0, sizeof *out);
    return text(d, "nvmlDeviceGetPciInfo", out->bus_id, sizeof out->bus_id);
}

SMALL_OF(nvmlDeviceGetTemperature)
SMALL(nvmlDeviceGetPowerUsage)
SMALL(nvmlDeviceGetEnforcedPowerLimit)
LARGE(nvmlDeviceGetTotalEnergyConsumption)
SMALL(nvmlDeviceGetPcieReplayCounter)
SMALL_OF(nvmlDeviceGetClockInfo)
SMALL_OF(nvmlDeviceGetPcieThroughput)
SMALL_OF(nvmlDeviceGetNvLinkState)
SMALL(nvmlDeviceGetRetiredPagesPendingStatus)
SMALL(nvmlDeviceGetMaxMigDeviceCount)
#ifdef OLD_DRIVER
LARGE(nvmlDeviceGetCurrentClocksThrottleReasons)
LARGE(nvmlDeviceGetSupportedClocksThrottleReasons)
#else
LARGE(nvmlDeviceGetCurrentClocksEventReasons)
LARGE(nvmlDeviceGetSupportedClocksEventReasons)
#endif

int nvmlDeviceGetTotalEccErrors(Device *d, u32 type, u32 kind, u64 *out) {
    return with(d, "nvmlDeviceGetTotalEccErrors", (int)type, (int)kind, out);
}
int nvmlDeviceGetNvLinkErrorCounter(Device *d, u32 link, u32 kind, u64 *out) {
    return with(d, "nvmlDeviceGetNvLinkErrorCounter", (int)link, (int)kind, out);
}

typedef struct {
    u32 field, scope; long long stamp, latency; u32 type; int result;
    union { double d; u32 u; u64 ull; } value;
} Field;
int nvmlDeviceGetFieldValues(Device *d, int count, Field *fields) {
    for (int i = 0; i < count; i++) {
        u64 value = 0;
        fields[i].result = with(d, "nvmlDeviceGetFieldValues", (int)fields[i].field, -1, &value);
        if (fields[i].result == LOST) return LOST;
        fields[i].value.ull = value;
    }
    return OK;
}

int nvmlDeviceGetUtilizationRates(Device *d, u32 out[2]) {
    const char *value;
    int result = ask(d, "nvmlDeviceGetUtilizationRates", &value);
    if (result == OK && sscanf(value, "%u %u", &out[0], &out[1]) != 2) abort();
    return result;
}

typedef struct { u64 total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(Device *d, Memory *out) {
    const char *value;
    int result = ask(d, "nvmlDeviceGetMemoryInfo", &value);
    if (result == OK && sscanf(value, "%llu %llu", &out->used, &out->total) != 2) abort();
    return result;
}
#ifndef OLD_DRIVER
typedef struct { u32 version; u64 total, reserved, free, used; } Memory2;
int nvmlDeviceGetMemoryInfo_v2(Device *d, Memory2 *out) {
    Memory plain;
    int result = nvmlDeviceGetMemoryInfo(d, &plain);
    if (result == OK) { out->total = plain.total; out->used = plain.used; }
    return result;
}
#endif

int nvmlDeviceGetRemappedRows(Device *d, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    const char *value;
    int result = ask(d, "nvmlDeviceGetRemappedRows", &value);
    if (result == OK && sscanf(value, "%u %u %u %u", corrected, uncorrected, pending, failed) != 4)
        abort();
    return result;
}
int nvmlDeviceGetRetiredPages(Device *d, u32 cause, u32 *count, u64 *addresses) {
    u64 pages = 0;
    int result = with(d, "nvmlDeviceGetRetiredPages", (int)cause, -1, &pages);
    if (result != OK) return result;
    if (*count < pages) { *count = (u32)pages; return INSUFFICIENT_SIZE; }
    for (u32 i = 0; i < pages; i++) addresses[i] = i << 12;
    *count = (u32)pages;
    return OK;
}

int nvmlDeviceGetMigMode(Device *d, u32 *current, u32 *pending) {
    *pending = 0;
    return small(d, "nvmlDeviceGetMigMode", current);
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device *d, u32 index, Device **out) {
    char name[16];
    snprintf(name, sizeof name, "%.8s:%u", d->name, index);
    if (!find(name, "nvmlDeviceGetUUID")) return NOT_FOUND;
    *out = device_named(name);
    return OK;
}

typedef struct { u32 pid; u64 memory; u32 gpu_instance, compute_instance; } Process;
static int processes(Device *d, u32 *count, Process *out) {
    const char *value;
    int result = ask(d, "nvmlDeviceGetComputeRunningProcesses", &value);
    if (result != OK) return result;
    u32 found = 0, room = out ? *count : 0;
    for (const char *at = value; *at; found++) {
        u32 pid;
        u64 memory;
        int used = 0;
        if (sscanf(at, "%u %llu%n", &pid, &memory, &used) != 2) break;
        if (found < room) { out[found].pid = pid; out[found].memory = memory; }
        at += used;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}
#ifdef OLD_DRIVER
int nvmlDeviceGetComputeRunningProcesses_v2(Device *d, u32 *count, Process *out) {
    return processes(d, count, out);
}
#else
int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, u32 *count, Process *out) {
    return processes(d, count, out);
}
#endif

/* One Xid for each "DEVICE xid N" line that was not told yet. */
static int told;
int nvmlEventSetCreate(void **set) { *set = &told; return OK; }
int nvmlDeviceRegisterEvents(Device *d, u64 kinds, void *set) { (void)d; (void)kinds; (void)set; return OK; }
typedef struct { Device *device; u64 type, data; u32 gpu_instance, compute_instance; } Event;
int nvmlEventSetWait_v2(void *set, Event *event, u32 milliseconds) {
    int seen = 0;
    (void)set; (void)milliseconds;
    for (int i = 0; i < line_count; i++)
        if (!strcmp(lines[i].key, "xid") && seen++ == told) {
            told++;
            event->device = device_named(lines[i].device);
            event->data = strtoull(lines[i].value, NULL, 10);
            return OK;
        }
    return TIMEOUT;
}
