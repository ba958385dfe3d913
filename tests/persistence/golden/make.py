"""Makes the model files of this folder, once for every format: ``python tests/persistence/golden/make.py``.

A later version must read them and find the scores that are noted in them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA
from gpukpca.decomposition import RidgePreimage
from gpukpca.kernels import RBF, Linear, Polynomial
from gpukpca.persistence import save_with_notes
from gpukpca.persistence.save_load import FORMAT

MODELS = {
    "kernel_pca": KernelPCA(2, kernel="rbf", fit_inverse_transform=True),
    "linear": KernelPCA(2, fit_inverse_transform=True),
    "algebra": KernelPCA(2, kernel=0.5 * RBF(gamma=0.1) + Linear() * Polynomial(degree=2)),
    "nystrom": KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(rank=5), random_state=0),
    "pca": PCA(2, scale=True, whiten=True),
    "incremental_pca": IncrementalPCA(2),
    "ridge": KernelPCA(2, kernel="rbf", preimage=RidgePreimage(n_landmarks=5)),
    "fixed_point": KernelPCA(2, kernel="rbf", preimage="fixed_point"),
    "distance_constraint": KernelPCA(2, kernel="poly", preimage="distance_constraint"),
    "probabilistic_pca": ProbabilisticPCA(2),
    "bayesian_pca": BayesianPCA(2),
    "local_pca": LocalPCA(2, 1, random_state=0),
}

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X, X_new = rng.standard_normal((12, 3)), rng.standard_normal((4, 3))
    for name, model in MODELS.items():
        notes = {"X_new": X_new, "scores": model.fit(X).transform(X_new)}
        save_with_notes(model, Path(__file__).with_name(f"{name}_{FORMAT}.npz"), notes)
