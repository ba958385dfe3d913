// One launch: block after block.

static Kernel the_kernel;
static Th *starting;

static void run_thread(void) {
    Th *me = starting;
    the_kernel(me, launch->parameters, 0);
    me->done = 1;
    for (;;) yield_(me);
}

static void place(Th *t, unsigned i, Index block) {
    t->lin = i;
    t->exchanges = t->copies.count = t->copies.committed = 0; // copies that nobody waits for never happen
    t->t = (Index){i % nt.x, i / nt.x % nt.y, i / (nt.x * nt.y)};
    t->c = block;
}

static void prepare_fiber(unsigned i, Index block) {
    Th *t = threads + i;
    place(t, i, block);
    t->done = t->waiting = 0;
    // Stacks that began at multiples of one size would share the same few lines of the cache.
    size_t unused = i % 64 * 192;
    t->fiber = new_fiber(launch->stacks + (size_t)i * STACK_BYTES, STACK_BYTES - unused, run_thread);
}

// Runs each fiber that does not wait at the barrier until it yields. Returns how many ended; `ran`: did any run?
static unsigned run_fibers_once(int *ran) {
    unsigned ended = 0;
    *ran = 0;
    for (unsigned i = 0; i < n_threads && !stopped; i++) {
        starting = threads + i;
        if (starting->done || starting->waiting) continue;
        switch_fiber(&scheduler, starting->fiber);
        *ran = 1;
        if (threads[i].done) ended++, progress++;
        if (threads[i].waiting) progress++;
    }
    return ended;
}

static void open_barrier(void) {
    for (unsigned i = 0; i < n_threads; i++) threads[i].waiting = 0, progress++;
}

static void run_block_of_fibers(Index block) {
    for (unsigned i = 0; i < n_threads; i++) prepare_fiber(i, block);
    unsigned left = n_threads, idle = 0;
    while (left && !stopped) {
        unsigned long before = progress;
        int ran;
        left -= run_fibers_once(&ran);
        if (!ran) open_barrier(); // all that are left wait at it
        idle = progress == before ? idle + 1 : 0;
        if (idle > 2 && !stopped) {
            launch->status = 719;
            strcpy(launch->message,
                   "the threads of a block wait for each other (exchange in a warp with lanes that never arrive)");
            return;
        }
    }
}

static void run_block_of_loops(Kernel kernel, Index block) {
    for (unsigned i = 0; i < n_threads; i++) {
        place(threads, i, block);
        kernel(threads, launch->parameters, 0);
    }
}

static void run(Kernel kernel, Launch *l, int synchronizes, size_t shared_static) {
    launch = l, nt = l->block, nc = l->grid, the_kernel = kernel, fibers = synchronizes, stopped = 0;
    n_threads = nt.x * nt.y * nt.z;
    SH = aligned_alloc(512, (shared_static + l->shared_bytes + 1024) / 512 * 512);
    threads = calloc(synchronizes ? n_threads : 1, sizeof(Th));
    memset(meetings, 0, sizeof *meetings * ((n_threads + 31) / 32));
    if (!setjmp(leave)) {
        for (unsigned z = 0; z < nc.z; z++)
            for (unsigned y = 0; y < nc.y; y++)
                for (unsigned x = 0; x < nc.x && !stopped; x++) {
                    Index block = {x, y, z};
                    if (synchronizes) run_block_of_fibers(block);
                    else run_block_of_loops(kernel, block);
                }
    }
    for (unsigned i = 0; i < (synchronizes ? n_threads : 1); i++) free(threads[i].copies.list);
    free(threads);
    free(SH);
}
