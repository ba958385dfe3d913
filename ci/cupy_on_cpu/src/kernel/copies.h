// cp.async: copies from global to shared memory that a thread starts and later waits for.
// The bytes move at the wait, the latest time that the rules allow: a kernel that reads before it waits sees old data.

typedef struct {
    uint64_t to, from;
    unsigned size, source_size; // the bytes from source_size on become zero
    unsigned group;
} Copy;

typedef struct {
    Copy *list;
    unsigned count, room;
    unsigned committed; // groups of this thread so far
} Copies;

static void start_copy(Copies *copies, uint64_t to, uint64_t from, unsigned size, unsigned source_size) {
    if (copies->count == copies->room) {
        copies->room = copies->room ? 2 * copies->room : 16;
        copies->list = realloc(copies->list, copies->room * sizeof(Copy));
    }
    copies->list[copies->count++] = (Copy){to, from, size, source_size, copies->committed};
}

static void commit_copies(Copies *copies) { copies->committed++; }

// Waits for all groups but the `pending` last ones. Copies that are in no group yet stay.
static void wait_copies(Copies *copies, unsigned pending) {
    unsigned left = 0;
    for (unsigned i = 0; i < copies->count; i++) {
        Copy c = copies->list[i];
        if (c.group < copies->committed && copies->committed - c.group > pending) {
            memcpy((void *)c.to, (void *)c.from, c.source_size);
            memset((char *)c.to + c.source_size, 0, c.size - c.source_size);
        } else
            copies->list[left++] = c;
    }
    copies->count = left;
}
