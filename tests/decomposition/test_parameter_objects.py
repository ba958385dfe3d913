"""Parameter objects: solvers, kernels and pre-images hold what was given, and no use of a model changes them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.decomposition import PCA as Peer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from gpukpca import KernelPCA, Nystrom, load
from gpukpca._rules import COUNT
from gpukpca.algorithms import KernelPCASettings, fit_kernel_pca
from gpukpca.decomposition import DistanceConstraintPreimage, FixedPointPreimage, RidgePreimage
from gpukpca.eigen import BlockKrylov, Dense, Solver, top_eigh
from gpukpca.eigen.low_rank import LowRank
from gpukpca.exceptions import InvalidParameterError
from gpukpca.gram import CenteredGram, DenseGram
from gpukpca.gram.low_rank import LowRankGram
from gpukpca.kernels import RBF, BlockCallable, Linear, Polynomial
from tests.each import each

X = np.random.default_rng(0).standard_normal((90, 3)) * [3.0, 2.0, 1.0]
WEIGHTS = np.arange(1.0, 91.0)
NUMBERS = [41, 3, 17, 3, 60, 8, 29, 11, 52, 71, 5]


def start() -> np.ndarray:
    return X[:, :2]


# Name -> the class and the arguments. An object of them is made in the test, so that a wrong class fails there alone.
NYSTROM: dict[str, dict[str, Any]] = {
    "default": {},
    "rank": {"rank": np.int64(20)},
    "all": {"rank": 20, "landmarks": "uniform", "tol": 0.01, "sample": "first"},
    "list": {"landmarks": NUMBERS},
    "tuple": {"landmarks": tuple(NUMBERS), "rank": 10},
    "range": {"landmarks": range(0, 60, 4)},
    "array": {"landmarks": np.asarray(NUMBERS, dtype=np.int32)},
    "lists": {"landmarks": X[:12].tolist()},
    "tuples": {"landmarks": tuple(map(tuple, X[:12].tolist()))},
    "points": {"landmarks": X[:12] + 0.1},
    "float32": {"landmarks": X[:12].astype(np.float32), "rank": 12},
    "integers": {"landmarks": np.round(X[:12]).astype(int)},
}
EXACT: dict[str, tuple[Any, dict[str, Any]]] = {
    "Dense": (Dense, {}),
    "Dense, spectrum": (Dense, {"full_spectrum": True, "tol": 1e-6}),
    "BlockKrylov": (BlockKrylov, {"max_passes": 30}),
    "BlockKrylov, start": (BlockKrylov, {"start": X[:, :2].copy(), "block_size": 8, "max_blocks": 6}),
    "BlockKrylov, function": (BlockKrylov, {"start": start, "or_dense": True}),
}
SOLVERS = {f"Nystrom, {name}": (Nystrom, given) for name, given in NYSTROM.items()} | EXACT
KERNELS: dict[str, Callable[[], Any]] = {
    "rule": lambda: RBF("median"),
    "sum": lambda: 2.0 * RBF("scale") + Polynomial(gamma=0.1, degree=2),
    "callable": lambda: BlockCallable(product),
    "linear": Linear,
}
PREIMAGES: dict[str, Callable[[], Any]] = {
    "ridge": lambda: RidgePreimage(),
    "ridge, landmarks": lambda: RidgePreimage(RBF("median"), alpha=0.1, n_landmarks=30),
    "fixed point": lambda: FixedPointPreimage(max_iter=50),
    "distances": lambda: DistanceConstraintPreimage(5),
}


def product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return A @ B.T


def batches() -> Iterator[np.ndarray]:
    return iter([X[:40].copy(), X[40:].copy()])


# Name -> a use of a model. Those of rows that come in batches are for Nyström.
WAYS: dict[str, Callable[[Any], Any]] = {
    "fit": lambda model: model.fit(X),
    "fit_transform": lambda model: model.fit_transform(X),
    "weights": lambda model: model.fit(X, sample_weight=WEIGHTS),
    "list of lists": lambda model: model.fit(X.tolist()),
    "plan": lambda model: str(model.plan(X)),
    "plan of a shape": lambda model: model.plan((5000, 3)),
    "twice": lambda model: model.fit(X[:80]).fit(X).transform(X[:5]),
    "a share": lambda model: model.set_params(n_components=0.9).fit(X),
    "an error": lambda model: model.fit(X * np.nan),
    "text": lambda model: (repr(model), model.get_params(), pickle.loads(pickle.dumps(model))),
}
IN_BATCHES: dict[str, Callable[[Any], Any]] = {
    "partial_fit": lambda model: [model.partial_fit(batch) for batch in (X, X[:7])],
    "weighted batch": lambda model: model.partial_fit(X, sample_weight=WEIGHTS),
    "batches": lambda model: model.fit(list(batches())),
    "plan of batches": lambda model: model.plan(list(batches())),
}


def used(use: Callable[[Any], Any], model: Any) -> None:
    """Use a model; an error is a use too."""
    with suppress(ValueError):
        use(model)


def model_of(**parameters: Any) -> KernelPCA:
    return KernelPCA(2, kernel="rbf", gamma=0.1, random_state=0).set_params(**parameters)


def made(name: str) -> Any:
    kind, given = SOLVERS[name]
    return kind(**given)


# -- no use changes them -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@each("name", SOLVERS)
def test_no_use_changes_a_solver_or_what_it_was_given(name):
    given = SOLVERS[name][1]
    arguments = joblib.hash(given)
    for way, use in (WAYS | (IN_BATCHES if name.startswith("Nystrom") else {})).items():
        solver = made(name)
        before = joblib.hash(solver)
        used(use, model_of(eigen_solver=solver))
        assert joblib.hash(solver) == before, way
        assert all(getattr(solver, key) is value for key, value in given.items()), way
        assert joblib.hash(given) == arguments, way
    settings = KernelPCASettings(solver=solver)
    fit_kernel_pca(X, RBF(0.1), 2, settings=settings, rng=0)
    if isinstance(solver, Solver):
        top_eigh(CenteredGram(DenseGram(RBF(0.1)(X))), 2, solver, rng=0)
    assert joblib.hash(solver) == before


def test_no_use_changes_the_solver_of_a_factor():
    for solver in (LowRank(), LowRank(tol=1e-3)):
        before = joblib.hash(solver)
        assert top_eigh(LowRankGram(X - X.mean(axis=0)), 2, solver, rng=0).converged.all()
        assert joblib.hash(solver) == before
        assert clone(solver) == solver != LowRank(tol=0.5)


@pytest.mark.filterwarnings("ignore")
@each("name", KERNELS)
def test_no_use_changes_a_kernel(name):
    uses = dict(WAYS)
    if name != "callable":
        uses |= {way: lambda model, use=use: use(model.set_params(eigen_solver="nystrom"))  # type: ignore[misc]
                 for way, use in IN_BATCHES.items()}  # fmt: skip
    for way, use in uses.items():
        kernel = KERNELS[name]()
        before = joblib.hash(kernel)
        used(use, KernelPCA(2, kernel=kernel, random_state=0))
        assert joblib.hash(kernel) == before, way


@pytest.mark.filterwarnings("ignore")
@each("name", PREIMAGES)
def test_no_use_changes_a_preimage(name):
    for way, use in WAYS.items():
        if way == "weights" and name != "fixed point":
            continue
        preimage = PREIMAGES[name]()
        before, model = joblib.hash(preimage), model_of(preimage=preimage, alpha=0.3)
        used(use, model)
        assert joblib.hash(preimage) == before, way
    model.fit(X).denoise(X[:4])
    assert joblib.hash(preimage) == before


def test_what_a_fit_keeps_is_no_array_of_the_user():
    for name in ("array", "points"):
        landmarks = np.array(NYSTROM[name]["landmarks"])
        model = model_of(eigen_solver=Nystrom(landmarks=landmarks)).fit(X)
        scores, text = model.transform(X), str(model.plan_)
        kept = [model.plan_.solver.landmarks, model.X_fit_, getattr(model, "landmarks_", None)]
        assert not any(np.shares_memory(landmarks, one) for one in kept if one is not None)
        landmarks[:] = 1
        np.testing.assert_array_equal(model.transform(X), scores)
        model.eigen_solver.set_params(rank=None, landmarks="uniform")
        assert str(model.plan_) == text


class Scale(TransformerMixin, BaseEstimator):
    """A step that counts its fits."""

    fits = 0

    def fit(self, X: Any, y: Any = None) -> Scale:
        type(self).fits += 1
        return self

    def transform(self, X: Any) -> Any:
        return X


class Counted(KernelPCA):
    """Kernel PCA that counts its fits."""

    fits = 0

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        type(self).fits += 1
        return super().fit_transform(X, y, sample_weight)


@each("name", ["Nystrom, list", "Nystrom, lists", "Nystrom, points", "Nystrom, float32", "BlockKrylov, start"])
def test_a_pipeline_with_a_memory_fits_once(name, tmp_path_factory):
    memory = str(tmp_path_factory.mktemp("memory"))
    Counted.fits = 0
    model = Counted(2, kernel="rbf", gamma=0.1, eigen_solver=made(name), random_state=0)
    pipeline = make_pipeline(Scale(), model, Peer(1), memory=memory)
    for _ in range(2):
        pipeline.fit(X)
    assert Counted.fits == 1


# -- as scikit-learn's -------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@each("name", SOLVERS)
def test_clones_pickles_files_and_results_are_equal(name, tmp_path_factory):
    solver = made(name)
    copies = [clone(solver), pickle.loads(pickle.dumps(solver))]
    for one in copies:
        assert type(one) is type(solver)
        assert one == solver
        assert hash(one) == hash(solver)
        assert set(one.get_params()) == set(solver.get_params()) >= set(SOLVERS[name][1])
    model = model_of(eigen_solver=solver)
    twin = clone(model)
    assert twin.eigen_solver is not solver
    assert twin.eigen_solver == solver
    for one in (twin, pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(one.fit_transform(X), model.fit_transform(X))
    reads = [pickle.loads(pickle.dumps(model))]
    if "function" not in name:  # files hold no code
        model.save(path := tmp_path_factory.mktemp("files") / "model")
        reads.append(load(path))
    for one in reads:
        assert (one.eigen_solver, one.eigen_solver.get_params().get("rank")) == (solver, getattr(solver, "rank", None))
        assert one.plan_.solver == model.plan_.solver
        np.testing.assert_array_equal(one.transform(X), model.transform(X))


def test_an_object_shows_its_parameters_alone():
    for made in (Nystrom(), RidgePreimage(), FixedPointPreimage(), DistanceConstraintPreimage()):
        assert {name for name in dir(made) if name[0] != "_"} == {*made.get_params(), "get_params", "set_params"}
    for made in (BlockKrylov(), Dense(), LowRank(), RBF(), Polynomial(), 2.0 * RBF()):
        assert not {"check", "rules", "parameter_names", "normalized"} & {*dir(made)}


def test_rules_of_a_class_add_to_those_of_its_bases():
    class Shifted(RBF, rules=(("shift", COUNT),)):
        def __init__(self, gamma=None, shift=1):
            super().__init__(gamma)
            self.shift = shift

    for wrong in ({"shift": 0}, {"gamma": -1.0}):
        with pytest.raises(InvalidParameterError, match=f"Shifted: {next(iter(wrong))}="):
            KernelPCA(2, kernel=Shifted(**{"gamma": 0.1} | wrong)).fit(X)
    assert KernelPCA(2, kernel=Shifted(0.1, 2)).fit(X).kernel_.shift == 2
    # As before 0.22: without this error its parameters would go unchecked.
    with pytest.raises(TypeError, match=r"Old.rules is not read: write class Old\(\.\.\., rules="):
        type("Old", (RBF,), {"rules": (("gamma", COUNT),)})


def test_text_shows_what_was_given():
    for text in (
        "Nystrom(rank=100, landmarks='uniform', tol=0.5, sample='reservoir', bound='norm', bound_rows=200)",
        "Nystrom(rank=None, landmarks=[5, 3, 5], tol=0.0, sample='first', bound='trace', bound_rows=None)",
        "Dense(tol=0.0, full_spectrum=True)",
        "LowRank(tol=0.25)",
        "RidgePreimage(kernel=RBF(gamma=0.5), gamma=None, alpha=0.1, centered=True, n_landmarks='auto')",
    ):
        assert repr(eval(text)) == text
    assert repr(Nystrom(landmarks=X)) == (
        "Nystrom(rank=None, landmarks=(...), tol=0.0, sample='first', bound='trace', bound_rows=None)"
    )
    assert "start=(...)" in repr(BlockKrylov(start=X))
    assert Nystrom(100) == Nystrom(rank=100)


def test_equal_landmarks_make_equal_solvers():
    ones = [Nystrom(landmarks=rows) for rows in ([3, 17, 40], (40, 3, 17, 3), np.array([17, 40, 3]), range(3, 41, 1))]
    assert ones[0] == ones[1] == ones[2] != ones[3]
    assert len({hash(one) for one in ones[:3]}) == 1
    points = [Nystrom(landmarks=rows) for rows in (X[:4], X[:4].tolist(), np.asfortranarray(X[:4]))]
    assert points[0] == points[1] == points[2] != Nystrom(landmarks=X[1:5])
    assert len({hash(one) for one in points}) == 1


@pytest.mark.filterwarnings("ignore")
def test_nested_names_set_the_parameters_of_a_solver():
    model = model_of(eigen_solver=Nystrom())
    assert model.set_params(eigen_solver__rank=20).eigen_solver.rank == 20
    assert model.get_params()["eigen_solver__rank"] == 20
    assert model.fit(X).plan_.solver.rank == 20
    assert model.set_params(eigen_solver__rank=9).plan_.solver.rank == 20  # of the fit
    model.set_params(eigen_solver=Nystrom(5), eigen_solver__landmarks="uniform")
    assert model.eigen_solver == Nystrom(5, landmarks="uniform")
    krylov = model_of(eigen_solver=BlockKrylov()).set_params(eigen_solver__passes=3).fit(X)
    assert krylov.n_passes_ == 3
    search = GridSearchCV(model_of(eigen_solver=Nystrom(), preimage=None), {"eigen_solver__rank": [4, 60]}, cv=3,
                          scoring=lambda model, X: -model.certificate_, error_score="raise")  # fmt: skip
    assert search.fit(X).best_params_ == {"eigen_solver__rank": 60}
    for name, expected in (("dense", "'dense'"), ("nystrom", "'nystrom'"), (Nystrom, "class")):
        with pytest.raises(InvalidParameterError, match=rf"eigen_solver=.*{expected}.*set eigen_solver to .*Nystrom\("):
            model_of(eigen_solver=name).set_params(eigen_solver__rank=50)
    with pytest.raises(InvalidParameterError, match=r"no parameter 'rnak'.*Did you mean 'rank'"):
        model.set_params(eigen_solver__rnak=50)
    with pytest.raises(InvalidParameterError, match=r"gamma__rank is an option of an object, and gamma=0.1 is not"):
        RBF(0.1).set_params(gamma__rank=3)


@each(
    "kind, wrong, text",
    [
        (Nystrom, {"rank": 0}, "rank=0"),
        (Nystrom, {"rank": 4, "landmarks": [1, 2]}, "rank=4 is not allowed with 2 landmarks"),
        (Nystrom, {"landmarks": [0.5]}, "at least one row number"),
        (Nystrom, {"landmarks": "leverage"}, "'rpcholesky', 'uniform'"),
        (Nystrom, {"sample": "last"}, "'first', 'reservoir'"),
        (BlockKrylov, {"passes": -1}, "passes=-1"),
        (BlockKrylov, {"tol": 2}, "tol=2"),
        (Dense, {"full_spectrum": "yes"}, "full_spectrum='yes'"),
    ],
)
def test_what_set_params_sets_is_checked_by_the_next_use(kind, wrong, text):
    with pytest.raises(InvalidParameterError, match=text):
        kind(**wrong)
    solver = kind().set_params(**wrong)
    model = model_of(eigen_solver=solver)
    uses = [lambda: model.fit(X), lambda: model.plan(X), lambda: clone(model)]
    uses += [lambda: model.partial_fit(X)] if kind is Nystrom else [lambda: top_eigh(DenseGram(np.eye(3)), 1, solver)]
    for use in uses:
        with pytest.raises(InvalidParameterError, match=text):
            use()


class Plain(Solver):
    """A solver of the user's, without parameters that have names."""

    def __init__(self, *inside: Any) -> None:
        self._inside, self.calls = inside, 0

    def solve(self, op: Any, p: int, rng: Any, report: Any = None) -> Any:
        self.calls += 1
        return Dense().solve(op, p, rng)


def test_a_solver_of_the_user_is_used_as_it_is():
    solver = Plain(1, 2)
    model = clone(model_of(eigen_solver=solver)).fit(X)
    assert (model.eigen_solver.calls, solver.calls) == (1, 0)
    assert model.eigen_solver is model.plan_.solver
    with pytest.raises(InvalidParameterError, match="is not an object with options"):
        model.set_params(eigen_solver__calls=3)


def test_a_stream_sees_changes_of_its_solver():
    for given in ({"rank": 20}, {"landmarks": NUMBERS}, {"landmarks": X[:12].tolist()}):
        model = model_of(eigen_solver=Nystrom(**given)).partial_fit(X).partial_fit(X[:9])
        model.eigen_solver.set_params(rank=None, landmarks=NUMBERS[:5])
        with pytest.raises(InvalidParameterError, match="begin a new stream"):
            model.partial_fit(X[:9])
