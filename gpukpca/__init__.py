"""Kernel PCA (and PCA) at large n on GPUs, with the same code on a laptop's CPU.

Nothing has run on a GPU yet: the tests run CuPy on a processor.
"""

from gpukpca._version import __version__

__all__ = [
    "PCA",
    "Batches",
    "BayesianPCA",
    "Checkpoint",
    "IncrementalPCA",
    "KernelPCA",
    "KernelPCACV",
    "LocalPCA",
    "Nystrom",
    "Plan",
    "ProbabilisticPCA",
    "Progress",
    "__version__",
    "backend",
    "double_center",
    "eigen",
    "exceptions",
    "gram",
    "gram_matrix",
    "kernel_matmat",
    "kernels",
    "load",
    "loadings",
    "residuals",
    "save",
    "top_eigh",
    "variable_correlations",
]

# Names are imported on first use (PEP 562): scikit-learn and SciPy take seconds to import. Type checkers treat
# TYPE_CHECKING as true, here without importing `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpukpca import backend, eigen, exceptions, gram, kernels
    from gpukpca import datasets as datasets  # beside `__all__`
    from gpukpca import decomposition as decomposition
    from gpukpca import model_selection as model_selection
    from gpukpca import plotting as plotting
    from gpukpca.algorithms.plan import Plan
    from gpukpca.algorithms.progress import Progress
    from gpukpca.checkpoint import Checkpoint
    from gpukpca.data.batches import Batches
    from gpukpca.decomposition import (
        PCA,
        BayesianPCA,
        IncrementalPCA,
        KernelPCA,
        LocalPCA,
        ProbabilisticPCA,
        loadings,
        residuals,
        variable_correlations,
    )
    from gpukpca.decomposition._model_files import load, save
    from gpukpca.eigen import Nystrom, top_eigh
    from gpukpca.gram import double_center, gram_matrix, kernel_matmat
    from gpukpca.model_selection import KernelPCACV
else:
    _ROOMS = (
        *("backend", "datasets", "decomposition", "eigen", "exceptions", "gram", "kernels", "model_selection"),
        "plotting",
    )
    _HOMES = {
        "Batches": "data.batches",
        "Checkpoint": "checkpoint",
        "KernelPCACV": "model_selection",
        "Plan": "algorithms.plan",
        "Progress": "algorithms.progress",
    }
    _HOMES |= dict.fromkeys(["load", "save"], "decomposition._model_files")
    _HOMES |= dict.fromkeys(["Nystrom", "top_eigh"], "eigen")
    _HOMES |= dict.fromkeys(["double_center", "gram_matrix", "kernel_matmat"], "gram")

    def __getattr__(name):
        from importlib import import_module

        if name in _ROOMS:
            return import_module(f"gpukpca.{name}")
        if name not in __all__:
            raise AttributeError(f"module 'gpukpca' has no attribute {name!r}")
        value = getattr(import_module(f"gpukpca.{_HOMES.get(name, 'decomposition')}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__, *_ROOMS})
