// The imitated devices, which every stand-in of a library shares: settings, counters, faults and copies that are late.
// device.c is one library, so that a copy, a launch and a product count together. cupy_on_cpu.py reads and sets its variables.
#ifndef CUPY_ON_CPU_DEVICE_H
#define CUPY_ON_CPU_DEVICE_H
#include <stddef.h>

enum { MOST_DEVICES = 16, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, NO_BINARY = 209 };

// The device of this thread.
extern __thread int device_current;

// ---- settings; their values at the start are those of a working card ---------------------------------------------------

extern int device_count;                      // 0: every call fails with NO_DEVICE
extern int device_count_status;               // what cudaGetDeviceCount returns
extern int device_capability;                 // without the dot
extern int device_driver_version;             // 0: no driver; -1: that of the headers
extern int device_runtime_version;            // -1: that of the headers
extern size_t device_bytes[MOST_DEVICES];
extern size_t device_foreign_bytes[MOST_DEVICES]; // what another program holds
extern long device_mallocs_before_failure;    // -1: none fails
extern int device_pins_memory;                // whether cudaHostAlloc works
extern int device_kernels_have_image;         // whether kernels run
extern int device_late_errors;                // a fault shows where the host waits next, as on a card, not at once
extern int device_late_copies;                // a copy from pinned memory waits for the next work of its stream
extern int device_no_work;                    // launches and products return at once

// ---- counters ------------------------------------------------------------------------------------------------------------

extern long count_operations; // launches, products, copies and allocations together
extern long count_launches, count_products, count_mallocs, count_waits;
extern long count_copies_to_device, count_copies_to_host, count_copies_on_device;

// ---- faults --------------------------------------------------------------------------------------------------------------

extern long fault_at_operation; // the number of the operation at which the device is lost; -1: none
extern int fault_status;        // the status of that loss

// Begin one operation of a stream: count it, make the copies that precede it. Returns the status that its call returns.
int device_operation(void *stream);

// The same for a kernel or a function of a library, whose name is recorded.
int device_launch(void *stream, const char *name);

// The host waits for a stream (DEVICE_WHOLE: for all). Returns the status of a fault that has struck by now.
#define DEVICE_WHOLE ((void *)-1)
int device_wait(void *stream);
// The same where the host waits for an event: for so many operations.
int device_wait_for_faults(long operations);

// Returns the status that every call returns: of a missing device, or of a fault that the host has seen.
int device_alive(void);

// A kernel has failed. Returns the status of its launch: 0 where the error is late.
int device_fault(int status);

// ---- copies from pinned memory -------------------------------------------------------------------------------------------

// Begin a copy that is made before the next work of its stream, or where the host waits for it. Returns as device_operation.
int device_late_copy(void *stream, void *to, const void *from, size_t bytes);

// Copies of a stream so far, held back or made: an event remembers the number.
long device_copies_begun(void *stream);
void device_finish_copies(void *stream, long until);

// Whether a stream waits for the null stream, and the null stream for it.
void device_set_non_blocking(void *stream);
void device_forget_stream(void *stream);
#endif
