// The threads of a block, faults, and the barrier of a block.
// Threads run one after the other. A kernel that synchronizes gives each thread its own stack (a fiber); a fiber runs
// until a barrier or an exchange, or its end. Blocks run one after the other.

typedef struct {
    Index t, c; // threadIdx, blockIdx
    unsigned lin; // number of the thread in its block
    int done, waiting, vote;
    unsigned exchanges; // of matrix instructions
    Copies copies;      // cp.async
    Fiber fiber;
} Th;
typedef void (*Kernel)(Th *, void **, void *);

static Index nt, nc; // blockDim, gridDim
static char *SH;     // shared memory of the block: the static arrays, then the dynamic part
static Th *threads;
static unsigned n_threads;
static Fiber scheduler; // the stack of `run`
static jmp_buf leave;
static Launch *launch;
static int stopped, fibers;
static unsigned long progress; // grows whenever a thread ends, reaches a barrier or completes an exchange

// Ends the launch with a CUDA error.
static void fault(Th *me, int status, const char *format, ...) {
    if (!launch->status) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(launch->message, sizeof launch->message, format, arguments);
        va_end(arguments);
        launch->status = status;
    }
    stopped = 1;
    if (!fibers) longjmp(leave, 1);
    for (;;) switch_fiber(&me->fiber, scheduler);
}

static inline void aligned(Th *me, uint64_t address, int bytes) {
    if (__builtin_expect(address % bytes != 0, 0))
        fault(me, 716, "misaligned access of %d bytes at %lx", bytes, (long)address);
}

static void yield_(Th *me) { switch_fiber(&me->fiber, scheduler); }

static void bar(Th *me) {
    me->waiting = 1;
    yield_(me);
}

// bar.red: in how many threads of the block is `value` true?
static unsigned bar_count(Th *me, int value, unsigned *size) {
    unsigned count = 0;
    me->vote = value != 0;
    bar(me);
    *size = 0;
    for (unsigned i = 0; i < n_threads; i++)
        if (!threads[i].done) {
            count += threads[i].vote;
            ++*size;
        }
    bar(me);
    return count;
}
