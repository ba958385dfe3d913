"""Warnings: texts that the fits of a search share, numbers in attributes, and the line of the user."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import exceptions as theirs

import gpukpca
from gpukpca import PCA, IncrementalPCA, KernelPCA, LocalPCA, Nystrom, exceptions
from gpukpca.decomposition import FixedPointPreimage
from gpukpca.eigen import BlockKrylov
from gpukpca.exceptions import (
    ConvergenceWarning,
    GpuKPCAWarning,
    PrecisionWarning,
    RankWarning,
    held_warnings,
    warn_again,
    warn_user,
)

CATEGORIES = [kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, Warning)]


def rows(n: int, seed: int, d: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))


def far(X: np.ndarray) -> Any:
    return KernelPCA(2, kernel="rbf").fit(X).transform(X + 1e4)


def tiny(X: np.ndarray) -> Any:
    return LocalPCA(2, 1, random_state=0).fit(np.ldexp(X, -1000 - len(X) // 10))


def asymmetric(X: np.ndarray) -> Any:
    return KernelPCA(2, kernel="precomputed").fit(X @ X.T + np.triu(0.01 * rows(len(X), 5, len(X))))


# Each cause of a warning, as a call on rows whose number and entries differ.
CAUSES = {
    "count": lambda X: KernelPCA(len(X) + 1, kernel="rbf").fit(X),
    "rank": lambda X: KernelPCA(len(X) // 2).fit(X),
    "rank of PCA": lambda X: PCA(4).fit(X[:, :1] * X[0]),
    "rank of landmarks": lambda X: KernelPCA(len(X) // 4, eigen_solver=Nystrom(rank=len(X) // 2)).fit(X),
    "rounding": lambda X: KernelPCA(2, kernel="poly").fit((X + 1e4).astype(np.float32)),
    "rounding of landmarks": lambda X: KernelPCA(2, kernel="poly", degree=5, eigen_solver=Nystrom(rank=5)).fit(
        (X + 3e3).astype(np.float32)
    ),
    "tolerance": lambda X: KernelPCA(2, kernel="rbf", tol=1e-15).fit(X),
    "residuals": lambda X: KernelPCA(2, kernel="poly", gamma=0.02).fit(X + 1e5),
    "variances": lambda X: PCA(4).fit(X + 1e16),
    "identity": lambda X: KernelPCA(2, kernel="rbf", gamma=1e4).fit(np.concatenate([X, X + 9.0])),
    "cluster": lambda X: KernelPCA(2, kernel="precomputed").fit(np.eye(len(X)) + 0.0 * X[0, 0]),
    "passes": lambda X: KernelPCA(
        2, kernel="rbf", gamma=2.0, eigen_solver="randomized", iterated_power=1, random_state=0
    ).fit(rows(9 * len(X), len(X))),
    "passes of PCA": lambda X: PCA(2, svd_solver="randomized", iterated_power=2, random_state=0).fit(
        rows(9 * len(X), 1, 200) * 0.9 ** np.arange(200)
    ),
    "share": lambda X: KernelPCA(0.9, eigen_solver=BlockKrylov(max_passes=3, block_size=8), random_state=0).fit(
        rows(9 * len(X), len(X), 200) * 0.97 ** np.arange(200)
    ),
    "certificate": lambda X: KernelPCA(2, kernel="rbf", eigen_solver=Nystrom(rank=5, tol=1e-9), random_state=0).fit(X),
    "indefinite": lambda X: KernelPCA(2, kernel="precomputed").fit(-(np.abs(X[:, :1] - X[:, 0]) ** 2.2)),
    "asymmetric": asymmetric,
    "far": far,
    "tiny": tiny,
    "zero": lambda X: KernelPCA(2, kernel="cosine").fit(X * (np.arange(len(X)) % 10 > 0)[:, None]),
    "clusters": lambda X: LocalPCA(5, 1, random_state=0).fit(np.repeat(X[:2], len(X), axis=0)),
    "iterations": lambda X: LocalPCA(3, 1, max_iter=len(X) // 15, tol=0.0, random_state=0).fit(X),
    "pre-images": lambda X: KernelPCA(2, kernel="rbf", preimage=FixedPointPreimage(max_iter=2)).fit(X).denoise(X + 0.1),
    "integers": lambda X: PCA(2).fit((X * 2.0**57).astype(np.int64)),
}


def warned(call: Any, *given: Any) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*given)
    return caught


def test_texts_depend_on_the_cause_and_numbers_are_values():
    for name, call in CAUSES.items():
        one, other = (warned(call, rows(n, seed)) for n, seed in ((30, 0), (47, 1)))
        assert one, name
        assert [str(seen.message) for seen in one] == [str(seen.message) for seen in other], name
        assert {seen.filename for seen in (*one, *other)} == {__file__}, name
        assert all(isinstance(seen.message, GpuKPCAWarning) and seen.message.values for seen in one), name


def test_no_message_of_the_library_formats_a_number():
    """A format such as {x:.3g} in the text of a warning would make one text for each fit."""
    called = 0
    for path in Path(gpukpca.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "warn_user":
                called += 1
                parts = [part for part in ast.walk(node.args[0]) if isinstance(part, ast.FormattedValue)]
                assert not [part for part in parts if part.format_spec is not None], (path, node.lineno)
    assert called > 30


SEARCH = """
    import sys, warnings
    import numpy as np
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.linear_model import LinearRegression
    from gpukpca import KernelPCA

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((150, 4)), rng.standard_normal(150)
    grid = {"kernelpca__gamma": [1e3, 1e4], "kernelpca__kernel": ["rbf", "laplacian"]}
    search = GridSearchCV(make_pipeline(KernelPCA(2), LinearRegression()), grid)
    search.fit(X, y)  # the line
    warnings.simplefilter("always")
    print("Warning: from here on always", file=sys.stderr)
    search.fit(X, y)
"""


def printed(code: str) -> list[str]:
    """The lines that a program prints about its warnings."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    root = Path(gpukpca.__file__).parents[1]
    ended = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=root, check=True)
    return [line for line in ended.stderr.splitlines() if "Warning: " in line]


def test_a_search_prints_each_cause_once_at_the_line_of_the_user():
    printed_lines = printed(SEARCH)
    first = printed_lines.index("Warning: from here on always")
    lines, always = printed_lines[:first], printed_lines[first + 1 :]
    assert len(lines) == 2
    assert all(line.startswith("<string>:13: PrecisionWarning: ") for line in lines)
    assert {"nearly the identity" in line for line in lines} == {True, False}
    assert len(always) == 2 * 20 + 1  # candidates, folds and twice rows; the best on all rows


def test_filters_of_the_user_decide(monkeypatch):
    """Only what Python shows once for a line is held back, also where joblib starts the fits."""
    monkeypatch.setitem(globals(), "__name__", "joblib.imitation")

    def warn() -> None:
        warn_user("the cause.", RankWarning, n=1)

    def count(*given: Any) -> int:
        with warnings.catch_warnings(record=True) as caught:
            warnings.resetwarnings()
            for one in given:
                warnings.filterwarnings(**one)
            for _ in range(3):
                with warnings.catch_warnings():  # which makes Python forget, as scikit-learn does for every task
                    warnings.simplefilter("ignore", DeprecationWarning)
                    warn()
        return len(caught)

    assert count({"action": "ignore", "category": GpuKPCAWarning}) == 0
    assert count({"action": "always", "message": "the cause"}) == 3
    assert count({"action": "always", "message": "another cause"}) == 1
    assert count({"action": "always", "category": RankWarning, "module": "another"}) == 0
    assert count({"action": "always", "category": RankWarning}) == 3
    with pytest.raises(RankWarning):
        count({"action": "error"})


def test_warnings_that_are_errors_carry_their_numbers():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RankWarning) as caught:
            KernelPCA(9).fit(np.eye(3))
    assert caught.value.values == {"n_components": 9, "n_samples": 3}
    assert caught.value.__notes__ == [caught.value.details] == ["n_components=9, n_samples=3"]


def test_every_category_keeps_its_values():
    assert set(CATEGORIES) >= {GpuKPCAWarning, PrecisionWarning, RankWarning}
    for kind in (*CATEGORIES, gpukpca.decomposition._base.ConvergenceWarning):
        assert issubclass(kind, GpuKPCAWarning)
        one = kind("the cause.", components=list(range(1, 20)), tol=1e-05, solver="dense")
        again = pickle.loads(pickle.dumps(one))
        assert (str(again), again.values) == ("the cause.", one.values)
        assert again.details == "components=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...], tol=1e-05, solver=dense"
    assert issubclass(gpukpca.decomposition._base.ConvergenceWarning, theirs.ConvergenceWarning)


def test_warnings_are_held_by_category_and_given_later():
    with held_warnings(ConvergenceWarning) as held:
        warn_user("later.", ConvergenceWarning, n=3)
        with pytest.warns(RankWarning, match="at once"):
            warn_user("at once.", RankWarning)
    (warning,) = held
    with pytest.warns(ConvergenceWarning, match="later") as caught:
        warn_again(warning)
    assert caught[0].message.values == {"n": 3}
    assert caught[0].filename == __file__


def test_streams_share_their_text():
    texts = {
        str(seen.message)
        for n in (20, 31)
        for seen in warned(lambda n=n: IncrementalPCA(2).fit(np.full((n, 3), float(n))))
    }
    assert len(texts) == 1
