// The imitated devices: see device.h.
#include "device.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

int device_count = 1, device_count_status, device_capability = 90, device_driver_version = -1, device_runtime_version = -1;
size_t device_bytes[MOST_DEVICES], device_foreign_bytes[MOST_DEVICES];
long device_mallocs_before_failure = -1;
int device_pins_memory = 1, device_kernels_have_image = 1, device_late_errors, device_late_copies, device_no_work;
long count_operations, count_launches, count_products, count_mallocs, count_waits;
long count_copies_to_device, count_copies_to_host, count_copies_on_device;
long fault_at_operation = -1;
int fault_status = 700;

__thread int device_current;

static int struck;     // the status of a fault that the host has not seen yet
static long struck_at; // the number of its operation
static int shown;      // the status of a fault that the host has seen: later calls return it

static pthread_mutex_t lock;

__attribute__((constructor)) static void read_settings(void) {
    pthread_mutexattr_t recursive; // an operation finishes copies
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &recursive);
    const char *text = getenv("CUPY_ON_CPU_DEVICES");
    if (text) device_count = atoi(text);
    if (device_count > MOST_DEVICES) device_count = MOST_DEVICES;
    text = getenv("CUPY_ON_CPU_MEMORY");
    for (int i = 0; i < MOST_DEVICES; i++) device_bytes[i] = text ? strtoull(text, 0, 0) : 141ull << 30;
    if ((text = getenv("CUPY_ON_CPU_CAPABILITY"))) device_capability = atoi(text);
}

// ---- faults --------------------------------------------------------------------------------------------------------------

int device_alive(void) { return device_count == 0 ? NO_DEVICE : shown; }

// A device that was lost is whole again.
void device_mend(void) {
    pthread_mutex_lock(&lock);
    struck = shown = 0;
    fault_at_operation = -1;
    pthread_mutex_unlock(&lock);
}

// Holds the lock.
static int strike(int status) {
    struck = status;
    struck_at = count_operations;
    return device_late_errors ? 0 : (shown = status);
}

int device_fault(int status) {
    pthread_mutex_lock(&lock);
    int now = strike(status);
    pthread_mutex_unlock(&lock);
    return now;
}

// ---- what was launched ---------------------------------------------------------------------------------------------------

static char *names; // one after another, a line each
static size_t names_length, names_fit;

static void record(const char *name) {
    size_t length = strlen(name);
    if (names_length + length + 2 > names_fit) {
        names_fit = 2 * (names_fit + length + 2);
        names = realloc(names, names_fit);
        if (!names) abort();
    }
    memcpy(names + names_length, name, length);
    names_length += length;
    names[names_length++] = '\n';
    names[names_length] = 0;
}

// The names of all launches and products since the last call of device_forget_launched, a line each.
const char *device_launched(void) { return names ? names : ""; }

void device_forget_launched(void) {
    pthread_mutex_lock(&lock);
    names_length = 0;
    if (names) names[0] = 0;
    pthread_mutex_unlock(&lock);
}

// ---- operations and waits ------------------------------------------------------------------------------------------------

static void finish_preceding_copies(void *stream);

// Returns the status of the operation that begins; holds the lock.
static int count_operation(void) {
    int status = device_alive();
    if (!status && ++count_operations == fault_at_operation) status = strike(fault_status);
    return status;
}

static int begin(void *stream, const char *name) {
    pthread_mutex_lock(&lock);
    int status = count_operation();
    if (!status) {
        finish_preceding_copies(stream);
        if (name) record(name);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int device_operation(void *stream) { return begin(stream, 0); }
int device_launch(void *stream, const char *name) { return begin(stream, name); }

int device_wait_for_faults(long operations) {
    pthread_mutex_lock(&lock);
    count_waits++;
    int status = device_alive();
    if (!status && struck && struck_at <= operations) status = shown = struck;
    pthread_mutex_unlock(&lock);
    return status;
}

int device_wait(void *stream) {
    int status = device_wait_for_faults(count_operations);
    if (!status) device_finish_copies(stream, -1);
    return status;
}

// ---- copies that are late ------------------------------------------------------------------------------------------------

typedef struct Copy {
    struct Copy *next;
    void *to;
    const void *from;
    size_t bytes;
} Copy;

// What is known of a stream: it is kept from its first late copy, or from its flag, to its end.
typedef struct Stream {
    struct Stream *next;
    void *handle;
    Copy *first;
    long begun, made;
    int non_blocking;
} Stream;
static Stream *streams;

static Stream *find_stream(void *handle) {
    for (Stream *one = streams; one; one = one->next)
        if (one->handle == handle) return one;
    Stream *made = calloc(1, sizeof *made);
    if (!made) abort();
    *made = (Stream){.next = streams, .handle = handle};
    return streams = made;
}

static void finish(Stream *stream, long until) {
    while (stream->first && (until < 0 || stream->made < until)) {
        Copy *copy = stream->first;
        memcpy(copy->to, copy->from, copy->bytes);
        stream->first = copy->next;
        stream->made++;
        free(copy);
    }
}

static int waits_for(void *stream, const Stream *other) {
    if (other->handle == stream) return 1;
    int one_is_null = !stream || !other->handle;
    return one_is_null && !other->non_blocking && !find_stream(stream)->non_blocking;
}

static void finish_preceding_copies(void *stream) {
    for (Stream *one = streams; one; one = one->next)
        if (one->first && waits_for(stream, one)) finish(one, -1);
}

int device_late_copy(void *stream, void *to, const void *from, size_t bytes) {
    pthread_mutex_lock(&lock);
    int status = count_operation();
    if (!status) {
        Copy *copy = malloc(sizeof *copy);
        if (!copy) abort();
        *copy = (Copy){0, to, from, bytes};
        Stream *known = find_stream(stream);
        Copy **last = &known->first;
        while (*last) last = &(*last)->next;
        *last = copy;
        known->begun++;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

long device_copies_begun(void *stream) {
    pthread_mutex_lock(&lock);
    long begun = find_stream(stream)->begun;
    pthread_mutex_unlock(&lock);
    return begun;
}

// Copies of all streams that are held back.
long device_copies_under_way(void) {
    long under_way = 0;
    pthread_mutex_lock(&lock);
    for (Stream *one = streams; one; one = one->next) under_way += one->begun - one->made;
    pthread_mutex_unlock(&lock);
    return under_way;
}

void device_finish_copies(void *stream, long until) {
    pthread_mutex_lock(&lock);
    for (Stream *one = streams; one; one = one->next)
        if (stream == DEVICE_WHOLE || one->handle == stream) finish(one, until);
    pthread_mutex_unlock(&lock);
}

void device_set_non_blocking(void *stream) {
    pthread_mutex_lock(&lock);
    find_stream(stream)->non_blocking = 1;
    pthread_mutex_unlock(&lock);
}

void device_forget_stream(void *stream) {
    pthread_mutex_lock(&lock);
    device_finish_copies(stream, -1);
    for (Stream **one = &streams; *one; one = &(*one)->next)
        if ((*one)->handle == stream) {
            Stream *gone = *one;
            *one = gone->next;
            free(gone);
            break;
        }
    pthread_mutex_unlock(&lock);
}
