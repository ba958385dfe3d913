"""
Nyström and block Krylov
========================

Block Krylov computes the eigenpairs of the full kernel matrix. Nyström computes those of an approximation from a few of
its columns, the landmarks, and reports bounds on the error. Here both are compared on 1797 digits.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from gpukpca import KernelPCA
from gpukpca.eigen import Nystrom

X = load_digits().data / 16.0
krylov = KernelPCA(10, kernel="rbf", gamma=0.05, eigen_solver="randomized", random_state=0).fit(X)
ranks = (25, 50, 100, 200, 400, 800)
models = [
    KernelPCA(10, kernel="rbf", gamma=0.05, eigen_solver=Nystrom(rank=rank), random_state=0).fit(X) for rank in ranks
]

# %%
# For a positive semidefinite kernel, no eigenvalue of the centered kernel matrix is below that of the approximation.
# Together they exceed them by at most the certificate: the trace of what the landmarks do not explain. It sums what is
# missing over the full spectrum, so the errors of the first eigenvalues are smaller. The norm bound, from some hundred
# drawn rows, holds for each of them, except with a probability of 1e-9. Both need no exact eigenvalue.
# :doc:`/explanation/how_sure` says what both bound and what not.

errors = np.array([np.max(krylov.eigenvalues_ - model.eigenvalues_) for model in models])
certificates = np.array([model.certificate_ for model in models])
norms = np.array([model.norm_bound_ for model in models])
for rank, error, certificate, norm in zip(ranks, errors, certificates, norms, strict=True):
    print(f"{rank:4d} landmarks: largest error {error:6.3f}, certificate {certificate:6.2f}, norm bound {norm:6.2f}")

# %%
# The plan states memory and time before a fit, so it compares both for sizes that are never fitted here. An array of
# one number, repeated, stands for the data. Time is an estimate for one core, right to a factor of a few.

sizes = (2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000)
solvers = {"block Krylov": "randomized", "Nyström, 1000 landmarks": Nystrom(rank=1000)}
plans = {
    name: [
        KernelPCA(10, kernel="rbf", gamma=0.05, eigen_solver=solver, memory_limit="4GiB", n_jobs=1).plan(
            np.broadcast_to(1.0, (n, 64))
        )
        for n in sizes
    ]
    for name, solver in solvers.items()
}
for name in solvers:
    print(plans[name][-1], end="\n\n")

# %%
# Block Krylov stores K until the limit of 4 GiB, which is the bend of its line. From there on it recomputes the tiles
# that do not fit in every pass. Its memory stays within the limit, and its time grows with n². Memory and time of
# Nyström grow with n.

_, (accuracy, memory, time) = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
accuracy.loglog(ranks, certificates, "o-", color="#e69f00", label="certificate")
accuracy.loglog(ranks, norms, "s-", color="#009e73", label="norm bound")
accuracy.loglog(ranks, errors, "o--", color="#e69f00", mfc="white", label="largest error")
accuracy.set(title="Nyström: error of 10 eigenvalues", xlabel="landmarks", ylabel="error, or its bound")
accuracy.set_xticks(ranks, ranks, minor=False)
accuracy.set_xticks([], minor=True)
accuracy.axhline(krylov.eigenvalues_[0], color="0.5", linestyle=":", label="largest eigenvalue")
for name, color in zip(solvers, ("#0072b2", "#e69f00"), strict=True):
    memory.loglog(sizes, [plan.predicted_bytes / 2**30 for plan in plans[name]], "o-", color=color, label=name)
    time.loglog(sizes, [plan.estimated_seconds for plan in plans[name]], "o-", color=color, label=name)
memory.set(title="memory of a fit, by its plan", xlabel="rows n", ylabel="GiB")
time.set(title="time of a fit, by its plan", xlabel="rows n", ylabel="seconds on one core")
for ax in (accuracy, memory, time):
    ax.legend(fontsize=8)
