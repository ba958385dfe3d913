"""The only room that imports CuPy. It knows arrays and numbers, no kernel class, no operator, no policy.

A module with CUDA kernels lists them in `KERNELS`: the name without «gpukpca_», and for an elementwise kernel the types
of its array arguments, by parameter, for every combination that the library launches. `_kernel(name)` returns CuPy's
object of that name. `ci/compile_kernels.sh` compiles all of them.
"""
