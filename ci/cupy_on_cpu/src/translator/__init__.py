"""Translates the PTX of one module to C and compiles it to a shared object.

Started as `python -I -S translator IN.ptx OUT.so`. A register becomes a variable of the unsigned type of its width
that holds the bits. An instruction becomes a statement that reads the bits as the type of the instruction and writes
bits back. A label stays a label, a branch is a goto. A function becomes `static void fn_NAME(Th *me, void **P, void
*R)`: the thread, the addresses of the parameters, and that of the result. For each kernel there is `launch_NAME`. The
folder `kernel` beside this package has the threads, barriers and exchanges. An instruction that is not written ends
the launch with an error that names it, when it is reached.

Modules: `scope` (what names mean, operands as C text), `instruction` (one parsed instruction), one module for each
family of instructions, `table` (which function translates which instruction), `functions`, `modules`, `command_line`.
"""
