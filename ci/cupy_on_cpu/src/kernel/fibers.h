// Fibers: functions with stacks of their own, between which a thread of the process switches (x86-64, System V calls).
// A reduction by 512 threads switches 10 000 times; ucontext calls the system at each switch, which takes 20 times as long.

typedef void *Fiber; // the top of its stack while it does not run

// Keeps the registers that a call keeps on the stack of `from`, and goes on where `to` left.
__attribute__((naked, noinline, noipa)) static void switch_fiber(Fiber *from, Fiber to) {
    __asm__("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
            "movq %rsp, (%rdi)\n"
            "movq %rsi, %rsp\n"
            "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
            "ret\n");
}

enum { KEPT_REGISTERS = 6 };

// Returns a fiber whose first switch enters `start`, which never returns.
static Fiber new_fiber(char *stack, size_t bytes, void (*start)(void)) {
    uint64_t *top = (uint64_t *)(stack + bytes / 16 * 16);
    *--top = 0; // where `start` would return to; so its stack is aligned as after a call
    *--top = (uint64_t)start;
    for (int i = 0; i < KEPT_REGISTERS; i++) *--top = 0;
    return top;
}
