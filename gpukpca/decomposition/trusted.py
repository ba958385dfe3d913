"""The classes that fitted models consist of, for readers of files that ask whom to trust."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from gpukpca.algorithms.kernel_pca.feature_space import FeatureSpace
from gpukpca.algorithms.pca.gaussian import GaussianModel
from gpukpca.decomposition._model_files import ESTIMATORS
from gpukpca.persistence.classes import CLASSES

# What skops does not know of NumPy and SciPy, and what pre-images and clusters keep of a fit.
OTHERS = (np.dtype, csr_array, FeatureSpace, GaussianModel)
# Names of all classes of which a fitted estimator consists: ``skops.io.load(path, trusted=TRUSTED_TYPES)``.
TRUSTED_TYPES: tuple[str, ...] = tuple(
    sorted(f"{cls.__module__}.{cls.__qualname__}" for cls in (*ESTIMATORS.values(), *CLASSES.values(), *OTHERS))
)
