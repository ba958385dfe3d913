"""CuPy: arrays and numbers only, no kernel class, no operator, no policy. No other room imports CuPy.

A module with CUDA kernels lists them in `KERNELS` by name: the source of a raw kernel, or the types of an elementwise
kernel's array arguments, by parameter, for every combination that the library launches. `_kernel(name)` returns CuPy's
object. `ci/compile_kernels.sh` compiles all of them.

Internal: it may change in any version.
"""
