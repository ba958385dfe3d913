"""Makes the model files of this folder, once for every format: ``python tests/persistence/golden/make.py``.

Later versions must read them and find the scores that are among their notes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from gpukpca import PCA, BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, Nystrom, ProbabilisticPCA, save
from gpukpca.kernels import RBF, Linear, Polynomial
from gpukpca.persistence.model_file import FORMAT

ALGEBRA = 0.5 * RBF(gamma=0.1) + Linear() * Polynomial(degree=2)
MODELS = {
    "kernel_pca": KernelPCA(2, kernel=ALGEBRA, preimage="ridge"),
    "nystrom": KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(rank=5), preimage="fixed_point", random_state=0),
    "pca": PCA(2, scale=True, whiten=True),
    "incremental_pca": IncrementalPCA(2),
    "probabilistic_pca": ProbabilisticPCA(2),
    "bayesian_pca": BayesianPCA(2),
    "local_pca": LocalPCA(2, 1, random_state=0),
    "pipeline": Pipeline([("scale", StandardScaler()), ("pca", PCA(2))]),
}

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X, X_new = rng.standard_normal((12, 3)), rng.standard_normal((4, 3))
    for name, model in MODELS.items():
        notes = {"X_new": X_new, "scores": model.fit(X).transform(X_new)}
        save(model, Path(__file__).with_name(f"{name}_{FORMAT}.safetensors"), notes)
