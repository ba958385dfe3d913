"""What an error about memory advises makes the fit work, and a refusal reads no row that its plan does not need."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.base import clone

from gpukpca import BayesianPCA, IncrementalPCA, KernelPCA, LocalPCA, ProbabilisticPCA
from gpukpca.algorithms.resources import parsed_bytes
from gpukpca.exceptions import MemoryBudgetError

pytestmark = pytest.mark.filterwarnings("ignore")  # of few steps, and of components that are left out

SHAPE = 600, 120


class Counted:
    """A set that counts the rows that are read of it."""

    def __init__(self, X):
        self.X, self.shape, self.dtype, self.ndim, self.chunks, self.read = X, X.shape, X.dtype, 2, (100, X.shape[1]), 0

    def __len__(self):
        return len(self.X)

    def __getitem__(self, key):
        self.read += np.atleast_2d(self.X[key]).shape[0]
        return self.X[key]


def latent(kind, **parameters):
    return kind(**{"n_components": 60, "max_iter": 2, "batch_size": 300, "random_state": 0, **parameters})


KINDS = ProbabilisticPCA, BayesianPCA
# Models with the shape of their data.
MODELS = [
    *((latent(kind, solver=solver), SHAPE) for kind in KINDS for solver in ("auto", kind._direct, "em")),
    *((latent(kind, n_components=None, solver=kind._direct), (500, 400)) for kind in KINDS),
    (IncrementalPCA(60, batch_size=300), SHAPE),
    (LocalPCA(40, 2, n_jobs=2, n_init=1, max_iter=1, random_state=0), (3000, 60)),
    (LocalPCA(2, 2, n_jobs=2, n_init=1, max_iter=1, random_state=0), (4000, 120)),
    (KernelPCA(2, kernel="rbf", gamma="median"), (600, 5)),
]
WORDS = {
    r"n_components=(\d+)": lambda count: {"n_components": int(count)},
    r"n_clusters=(\d+)": lambda count: {"n_clusters": int(count)},
    r"batch_size=(\d+)": lambda count: {"batch_size": int(count)},
    r'^solver="em"': lambda _: {"solver": "em"},
    r"n_jobs=1": lambda _: {"n_jobs": 1},
    r"gamma as a number": lambda _: {"gamma": 0.01},
    r"float32 data": lambda _: {},
}


def needed_by(model, X):
    with pytest.raises(MemoryBudgetError) as refused:
        clone(model).set_params(memory_limit=1000).fit(X)
    return parsed_bytes(re.search(r"needs?(?:, to choose gamma,)? ([\d.]+ \w+)", str(refused.value))[1])


def test_what_an_error_advises_makes_the_fit_work(rng):
    seen = set()
    for model, shape in MODELS:
        X = rng.standard_normal(shape)
        for share in (0.95, 0.7, 0.5, 0.3):
            tight = clone(model).set_params(memory_limit=int(share * needed_by(model, X)))
            try:
                tight.fit(X)
            except MemoryBudgetError as refused:
                advice = str(refused).partition(" Try ")[2].split(", ")
                for text in advice[:-1]:
                    (words,) = (words for words in WORDS if re.search(words, text))
                    seen.add(words)
                    match = re.search(words, text)
                    followed = clone(tight).set_params(**WORDS[words](match[1] if match.lastindex else ""))
                    followed.fit(X.astype(np.float32) if text == "float32 data" else X)
    assert seen == set(WORDS)


def test_latent_models_of_a_set_are_refused_before_its_rows_are_read(rng):
    X = rng.standard_normal(SHAPE)
    for kind in KINDS:
        for solver in ("auto", kind._direct, "em"):
            rows = Counted(X)
            with pytest.raises(MemoryBudgetError, match="Try a larger"):
                latent(kind, solver=solver, memory_limit="100KiB").fit(rows)
            assert rows.read <= 1, (kind, solver)  # the first row tells the dtype


def test_auto_goes_on_to_em_where_only_that_fits(rng):
    X = rng.standard_normal((500, 400))
    model = ProbabilisticPCA(max_iter=2, random_state=0)
    spectrum, em = (needed_by(clone(model).set_params(solver=solver), X) for solver in ("closed_form", "em"))
    assert em < spectrum
    solvers = [clone(model).set_params(memory_limit=limit).fit(X).solver_ for limit in (spectrum, em)]
    assert solvers[0].startswith("closed_form")
    assert solvers[1] == "em"
