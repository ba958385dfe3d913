"""Model files: the archive, the values in it, the objects that values may be, and what an estimator keeps."""

from gpukpca.decomposition.saved.mixin import Saved, restored

__all__ = ["Saved", "restored"]
