"""Kernels: every block against a loop over pairs, on every library, at the edges of the number range."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import operator
import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.gaussian_process import kernels as process

from gpukpca import KernelPCA, kernels, load
from gpukpca.backend import blocking
from gpukpca.exceptions import DeviceMismatchError, InvalidParameterError, RankWarning
from gpukpca.gram import gram_matrix
from gpukpca.kernels import (
    RBF,
    BlockCallable,
    Cosine,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    PairwiseCallable,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
    exp,
    is_psd,
    modulate,
)
from gpukpca.kernels.algebra import Exp, Modulated, Power, Product, Scale, Sum
from tests import oracle, tolerances
from tests.each import each

G = 0.3

DOT = {
    "linear": (Linear(), oracle.linear),
    "poly3": (Polynomial(3, G, 1.0), oracle.poly(3, G, 1.0)),
    "poly2-homogeneous": (Polynomial(2, G, 0.0), oracle.poly(2, G, 0.0)),
    "poly5-negative": (Polynomial(5, 0.2, -0.5), oracle.poly(5, 0.2, -0.5)),
    "sigmoid": (Sigmoid(G, 0.5), oracle.sigmoid(G, 0.5)),
    "cosine": (Cosine(), oracle.cosine),
}
DISTANCE = {
    "rbf": (RBF(G), oracle.rbf(G)),
    "laplacian": (Laplacian(G), oracle.laplacian(G)),
    "matern1/2": (Matern(G, 0.5), oracle.matern(G, 0.5)),
    "matern3/2": (Matern(G, 1.5), oracle.matern(G, 1.5)),
    "matern5/2": (Matern(G, 2.5), oracle.matern(G, 2.5)),
    "matern-inf": (Matern(G, math.inf), oracle.matern(G, math.inf)),
    "rational": (RationalQuadratic(G, 1.0), oracle.rational_quadratic(G, 1.0)),
    "rational-alpha": (RationalQuadratic(G, 2.7), oracle.rational_quadratic(G, 2.7)),
}
PLAIN = DOT | DISTANCE
ALGEBRA = {
    "sum": (Linear() + RBF(G), lambda x, y: oracle.linear(x, y) + oracle.rbf(G)(x, y)),
    "product": (Polynomial(2, G, 1.0) * RBF(G), lambda x, y: oracle.poly(2, G, 1.0)(x, y) * oracle.rbf(G)(x, y)),
    "scale": (2.5 * Laplacian(G), lambda x, y: 2.5 * oracle.laplacian(G)(x, y)),
    "power": (Cosine() ** 3, lambda x, y: oracle.cosine(x, y) ** 3),
    "exp": (exp(Cosine()), lambda x, y: math.exp(oracle.cosine(x, y))),
    "modulated": (
        modulate(RBF(G), lambda X: 1.0 + X[:, 0] ** 2),
        lambda x, y: (1 + x[0] ** 2) * (1 + y[0] ** 2) * oracle.rbf(G)(x, y),
    ),
    "nested": (
        exp(0.5 * (Matern(G, 2.5) + Cosine() ** 2)) * RBF(0.1),
        lambda x, y: math.exp(0.5 * (oracle.matern(G, 2.5)(x, y) + oracle.cosine(x, y) ** 2)) * oracle.rbf(0.1)(x, y),
    ),
}
ALL = PLAIN | ALGEBRA
UNIT_DIAGONAL = sorted(DISTANCE) + ["cosine"]


def rows(n: int, d: int, dtype: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


def size(name: str, expected: np.ndarray) -> float:
    """What the rounding errors of an entry are proportional to."""
    return max(1.0, float(np.max(np.abs(expected)))) * (5.0 if name in ("poly5-negative", "nested") else 1.0)


# -- against the oracle ------------------------------------------------------------------------------------------------


@each("name", ALL)
def test_rectangle_equals_the_loop_over_pairs(xp, dtype, name):
    kernel, k = ALL[name]
    X, Y = rows(23, 3, dtype), rows(11, 3, dtype, 1)
    K = kernel(xp.array(X), xp.array(Y))
    expected = oracle.gram(k, X, Y)
    assert xp.owns(K)
    assert K.dtype == xp.dtype(dtype)
    assert np.max(np.abs(xp.host(K) - expected)) <= tolerances.kernel(dtype, size(name, expected))


@each("name", ALL)
def test_square_is_exactly_symmetric_with_the_diagonal_of_the_kernel(xp, dtype, name):
    kernel, k = ALL[name]
    X = rows(19, 3, dtype, 2)
    K = xp.host(kernel(xp.array(X)))
    expected = oracle.gram(k, X)
    assert np.array_equal(K, K.T)
    assert np.array_equal(np.diag(K), xp.host(kernel.diagonal(xp.array(X))))
    assert np.max(np.abs(K - expected)) <= tolerances.kernel(dtype, size(name, expected))


@each("name", [name for name, (kernel, _) in DOT.items() if kernel.feature_count(3)])
def test_inner_products_of_features_are_the_kernel(xp, dtype, name):
    kernel, k = DOT[name]
    X = rows(23, 3, dtype)
    template = kernel.template(xp.array(X))
    F, expected = kernel.features(xp.array(X), template), oracle.gram(k, X)
    assert F.shape == (23, kernel.feature_count(3))
    assert F.dtype == xp.dtype(dtype)
    assert np.array_equal(xp.host(F)[5:7], xp.host(kernel.features(xp.array(X[5:7]), template)))  # part by part
    F = xp.host(F).astype(np.float64)
    assert np.max(np.abs(F @ F.T - expected)) <= tolerances.kernel(dtype, size(name, expected))


@each("name", UNIT_DIAGONAL)
def test_diagonal_is_exactly_one(xp, dtype, name):
    K = xp.host(PLAIN[name][0](xp.array(100 * rows(17, 4, dtype, 3))))
    assert np.all(np.diag(K) == 1.0)


@each("name", ALL)
def test_one_row_and_one_feature(xp, name):
    kernel, k = ALL[name]
    X = np.array([[0.7]])
    expected = oracle.gram(k, X)
    assert abs(float(xp.host(kernel(xp.array(X)))[0, 0]) - expected[0, 0]) <= tolerances.kernel("float64", 10.0)
    Y = np.array([[0.2], [1.1]])
    assert np.max(np.abs(xp.host(kernel(xp.array(X), xp.array(Y))) - oracle.gram(k, X, Y))) <= 1e-14 * 10


def test_integers_are_computed_in_float64(xp):
    X = np.array([[1, 2], [3, 5]])
    K = RBF(0.1)(xp.array(X))
    assert K.dtype == xp.dtype("float64")
    assert np.max(np.abs(xp.host(K) - oracle.gram(oracle.rbf(0.1), X))) <= 1e-15


def test_lists_are_rows():
    assert np.array_equal(Linear()([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 11.0], [11.0, 25.0]]))


def test_cosine_of_zero_rows_is_zero_and_warns(xp):
    X = np.array([[0.0, 0.0], [1.0, 2.0]])
    with pytest.warns(RankWarning, match="some rows are zero") as caught:
        K = xp.host(Cosine()(xp.array(X)))
    assert caught[0].message.values["rows"] == [0]
    assert np.array_equal(K[0], [0.0, 0.0])
    assert K[1, 1] == 1.0


# -- the edges of the number range -------------------------------------------------------------------------------------


@each("offset", [1e4, 1e8])
@each("name", DISTANCE)
def test_an_offset_of_the_data_costs_no_digits(xp, dtype, name, offset):
    kernel, k = DISTANCE[name]
    X = (rows(15, 3, "float64", 4) + offset).astype(dtype)
    Y = (rows(7, 3, "float64", 5) + offset).astype(dtype)
    a, b = xp.array(X), xp.array(Y)
    assert np.max(np.abs(xp.host(kernel(a)) - oracle.gram(k, X))) <= tolerances.kernel(dtype, 2.0)
    assert np.max(np.abs(xp.host(kernel(a, b)) - oracle.gram(k, X, Y))) <= tolerances.kernel(dtype, 2.0)


HUGE = [("float64", 1e155), ("float64", 1e200), ("float64", 1e300), ("float32", 1e20), ("float32", 1e35)]


@each("dtype, factor", HUGE)
@each("name", DISTANCE)
def test_huge_data_give_the_identity_and_duplicates_give_one(xp, name, dtype, factor):
    X = rows(9, 3, "float64", 6)
    X[5] = X[2]
    X = (X * factor).astype(dtype)
    expected = np.eye(9)
    expected[5, 2] = expected[2, 5] = 1.0
    K = xp.host(DISTANCE[name][0](xp.array(X)))
    assert np.max(np.abs(K - expected)) <= 1e-15
    K = xp.host(DISTANCE[name][0](xp.array(X), xp.array(X[:4])))
    assert np.max(np.abs(K - expected[:, :4])) <= 1e-15


@pytest.mark.parametrize(("dtype", "factor"), [("float64", 1e155), ("float64", 1e200), ("float32", 1e25)])
def test_cosine_does_not_depend_on_the_size_of_the_data(xp, dtype, factor):
    X = rows(9, 3, dtype, 6)
    for scale in (factor, 1.0 / factor):
        scaled = (X * scale).astype(dtype)
        K = xp.host(Cosine()(xp.array(scaled)))
        assert np.max(np.abs(K - oracle.gram(oracle.cosine, X))) <= tolerances.kernel(dtype)


@each("dtype, factor", [("float64", 1e-170), ("float32", 1e-30)])
@each("name", DISTANCE)
def test_tiny_data_give_ones(xp, name, dtype, factor):
    X = (rows(9, 3, "float64", 7) * factor).astype(dtype)
    K = xp.host(DISTANCE[name][0](xp.array(X)))
    assert np.all(K == 1.0)


@pytest.mark.parametrize(("dtype", "factor"), [("float64", 2.0**500), ("float64", 2.0**-500), ("float32", 2.0**-50)])
def test_a_power_of_two_between_data_and_gamma_is_bitwise_nothing(xp, dtype, factor):
    X = rows(13, 3, dtype, 8)
    K = xp.host(RBF(0.5)(xp.array(X)))
    scaled = xp.host(RBF(0.5 / factor**2)(xp.array((X * factor).astype(dtype))))
    assert np.array_equal(K, scaled)


@each("gamma", [1e-8, 1e-12])
@each("name", ["rbf", "rational", "laplacian", "matern-inf"])
def test_a_flat_kernel_keeps_its_differences_where_it_will_be_centered(xp, dtype, name, gamma):
    kernel = DISTANCE[name][0].__class__(**DISTANCE[name][0].get_params() | {"gamma": gamma})
    X = rows(12, 3, dtype, 9)
    prepared = kernel.prepare(xp.array(X), centered=True)
    tile = xp.host(kernel.tile(prepared, prepared)).astype(np.float64)
    # To first order in gamma all of them are 1 - gamma times a distance.
    distance = oracle.square_distance if name != "laplacian" else lambda x, y: float(np.sum(np.abs(x - y)))
    expected = -gamma * oracle.gram(distance, X)
    largest = np.max(np.abs(expected))
    assert np.max(np.abs(tile - expected)) <= largest * (tolerances.kernel(dtype) + 10 * largest)


def test_gamma_zero_gives_ones(xp):
    for kernel in (RBF(0.0), Laplacian(0.0), RationalQuadratic(0.0), Matern(0.0, 0.5), Matern(0.0, 2.5)):
        assert np.all(xp.host(kernel(xp.array(rows(6, 2, "float64")))) == 1.0)


@each("name", DISTANCE)
def test_near_pairs_and_duplicates_keep_their_digits(xp, name):
    kernel, k = DISTANCE[name]
    X = rows(8, 3, "float64", 10)
    X = np.concatenate([X, X[:3], X[:3] + 1e-9, X[:3] + 1e-5, X[:3] + 1e-3])
    K = xp.host(kernel(xp.array(X)))
    assert np.max(np.abs(K - oracle.gram(k, X))) <= (1e-12 if name == "matern1/2" else 1e-14)


@each("gamma", [1.0, 100.0, 1e4, 1e6])
def test_a_narrow_kernel_is_as_exact_as_a_wide_one(xp, dtype, gamma):
    """Neighbors on a fine grid: gamma times a distance is about one, gamma times a norm is not."""
    X = (np.arange(14)[:, None] / math.sqrt(gamma) + np.array([[0.0, 0.25]])).astype(dtype)
    X = np.concatenate([X, X + np.array([[50.0, 0.0]], dtype=dtype)])
    K = xp.host(RBF(gamma)(xp.array(X)))
    bound = {"float64": 2e-10, "float32": 5e-6}[dtype]
    assert np.max(np.abs(K - oracle.gram(oracle.rbf(gamma), X))) <= bound


def test_integer_powers_of_negative_bases_are_exact(xp, dtype):
    X = np.array([[1.0], [-2.0], [3.0]], dtype=dtype)
    for degree in range(8):  # 9**7 is still an integer of float32
        K = xp.host(Polynomial(degree, 1.0, 0.0)(xp.array(X)))
        assert np.array_equal(K, (X @ X.T).astype(np.float64) ** degree)
        assert np.array_equal(xp.host((Linear() ** degree)(xp.array(X))), K)


def test_a_broken_power_of_a_negative_base_is_an_error_that_says_so(xp):
    with pytest.raises(InvalidParameterError, match="integer degree"):
        Polynomial(2.5, 1.0, 0.0)(xp.array(np.array([[1.0], [-1.0]])))
    K = xp.host(Polynomial(2.5, 1.0, 3.0)(xp.array(np.array([[1.0], [-1.0]]))))
    assert np.max(np.abs(K - np.array([[4.0, 2.0], [2.0, 4.0]]) ** 2.5)) <= 1e-13


# -- algebra -----------------------------------------------------------------------------------------------------------


def test_modulated_exponential_of_the_inner_product_is_the_gaussian(xp, dtype):
    """exp(2 g x.y) exp(-g |x|^2) exp(-g |y|^2)."""
    gamma = 0.2
    X = 0.5 * rows(21, 3, dtype, 12)

    def decay(Z):
        return xp.module.exp(-gamma * xp.module.sum(Z * Z, axis=1))

    K = xp.host(modulate(exp(Scale(Linear(), 2 * gamma)), decay)(xp.array(X)))
    assert np.max(np.abs(K - xp.host(RBF(gamma)(xp.array(X))))) <= tolerances.kernel(dtype)


def test_operators_build_the_nodes():
    assert RBF(1.0) + Linear() == Sum(RBF(1.0), Linear())
    assert RBF(1.0) * Linear() == Product(RBF(1.0), Linear())
    assert 2 * RBF(1.0) == RBF(1.0) * 2.0 == Scale(RBF(1.0), 2.0)
    assert np.float64(2) * RBF(1.0) == Scale(RBF(1.0), 2.0)
    assert RBF(1.0) ** 3 == Power(RBF(1.0), 3)
    assert exp(RBF(1.0)) == Exp(RBF(1.0))
    g = np.sum
    assert modulate(Linear(), g) == Modulated(Linear(), g)


@pytest.mark.parametrize("wrong", [lambda: RBF(1.0) + 1, lambda: 1 + RBF(1.0), lambda: RBF(1.0) * "a"])
def test_what_is_no_kernel_cannot_be_added(wrong):
    with pytest.raises(TypeError):
        wrong()


@pytest.mark.parametrize("factor", [0, -1.0, math.nan, math.inf, "2", True])
def test_a_scale_must_be_a_positive_number(factor):
    with pytest.raises(InvalidParameterError, match="factor"):
        Scale(RBF(1.0), factor)


@each(
    "kernel",
    [
        RBF(-1.0),
        RBF(math.nan),
        RBF("wide"),
        Polynomial(-1),
        Polynomial(2, 1.0, math.inf),
        Sigmoid(-0.1),
        Matern(1.0, 2.0),
        RationalQuadratic(1.0, 0.0),
        Laplacian(-2.0),
        RBF(1.0) ** 0.5,
        RBF(1.0) ** -1,
        Sum(RBF(1.0), 3),
        Modulated(RBF(1.0), 3),
        RBF(True),
    ],
)
def test_parameters_out_of_range_are_refused_when_the_kernel_is_used(kernel):
    with pytest.raises(InvalidParameterError):
        kernel(np.ones((2, 2)))


def test_modulation_must_return_one_factor_a_row():
    with pytest.raises(InvalidParameterError, match="one factor a row"):
        modulate(RBF(1.0), lambda X: X)(np.ones((3, 2)))


def test_no_features_are_refused():
    with pytest.raises(InvalidParameterError, match=r"0 features \(shape=\(3, 0\)\)"):
        RBF(1.0)(np.ones((3, 0)))


def test_one_dimension_is_refused():
    with pytest.raises(InvalidParameterError, match="Expected 2D array"):
        RBF(1.0)(np.ones(3))


def test_two_devices_do_not_meet():
    strict = pytest.importorskip("array_api_strict")
    X = strict.asarray(np.ones((3, 2)), device=strict.Device("CPU_DEVICE"))
    Y = strict.asarray(np.ones((3, 2)), device=strict.Device("device1"))
    for kernel in (RBF(1.0), Linear(), Laplacian(1.0)):
        with pytest.raises(DeviceMismatchError, match="device"):
            kernel(X, Y)
        with pytest.raises(DeviceMismatchError, match="librar"):
            kernel(X, np.ones((3, 2)))


# -- parameters --------------------------------------------------------------------------------------------------------


def test_nested_parameters_are_got_and_set():
    kernel = Sum(Scale(RBF(0.5), 2.0), Power(Polynomial(2, 1.0, 3.0), 2))
    parameters = kernel.get_params()
    assert parameters["k1__k__gamma"] == 0.5
    assert parameters["k2__k__coef0"] == 3.0
    kernel.set_params(k1__k__gamma=0.25, k2__exponent=3)
    assert kernel.k1.k.gamma == 0.25
    assert kernel.k2.exponent == 3


def test_unknown_parameters_are_refused_with_a_hint():
    with pytest.raises(InvalidParameterError, match=r"Did you mean 'gamma'\?"):
        RBF().set_params(gama=1.0)


@each("name", sorted(set(ALL) - {"modulated"}))
def test_clone_pickle_repr_equality_and_hash(name):
    kernel = ALL[name][0]
    copies = [clone(kernel), pickle.loads(pickle.dumps(kernel))]
    copies.append(eval(repr(kernel), globals() | {"inf": math.inf}))
    for one in copies:
        assert one is not kernel
        assert one == kernel
        assert one.get_params().keys() == kernel.get_params().keys()
        assert hash(one) == hash(kernel)
    assert len({kernel, *copies, RBF(0.123)}) == 2


class Weighted(Kernel):
    """A kernel of a user's own, with any parameter."""

    def __init__(self, weights=None) -> None:
        self.weights = weights


def test_parameters_of_every_kind_make_equal_kernels_with_one_hash(xp):
    array = np.array([1.0, 2.0])
    kinds = [
        (0.5, np.float64(0.5), np.float32(0.5), np.longdouble(0.5)),
        (1, True, np.True_, np.int8(1), 1.0),
        ("scale", np.str_("scale")),
        (None, None),
        (xp.array(array), xp.array(array.copy())),
        (xp.array(array.astype(np.float32)), xp.array(array.astype(np.float32))),
        ([array, "a"], [array.copy(), "a"]),
        ({"w": array, "k": RBF(0.5)}, {"w": array.copy(), "k": RBF(np.float64(0.5))}),
        ((1, (2.0, array)), (1.0, (2, array.copy()))),
        (RBF(0.5) + 2 * Linear(), RBF(np.float32(0.5)) + 2.0 * Linear()),
        (math.sin, math.sin),
        (process.RBF(2.0), process.RBF(2.0)),
    ]
    for kind in kinds:
        for a, b in itertools.pairwise(kind):
            for make in (Weighted, lambda value: Sum(Weighted(value), RBF(0.1)), lambda value: Scale(Weighted(value))):
                assert make(a) == make(b)
                assert hash(make(a)) == hash(make(b))
    different = [
        *(0.5, 2, "scale", None, xp.array(array), xp.array(array[:1]), [array, "b"], {"w": array}, math.cos),
        *(xp.array(array + 1), (1, 2), [1, 2], RBF(0.5), Linear(), {"v": array}, np.array([0.5])),
    ]
    for i, a in enumerate(different):
        for b in different[:i]:
            assert Weighted(a) != Weighted(b)


LONG = {
    "sum": lambda n: functools.reduce(operator.add, [RBF(0.1 + i / n) for i in range(n)]),
    "sum from the right": lambda n: functools.reduce(lambda a, b: b + a, [RBF(0.1 + i / n) for i in range(n)]),
    "product": lambda n: functools.reduce(operator.mul, [RBF((1 + i) / n**2) for i in range(n)]),
}


@pytest.mark.parametrize(("name", "n"), [("sum", 15), *((name, 16) for name in LONG), ("sum", 100)])
def test_kernels_of_many_terms_are_kernels(name, n, tmp_path):
    """They compute, and are printed, cloned, pickled, compared and saved, without going down Python's stack."""
    X, kernel = rows(12, 3, "float64"), LONG[name](n)
    one = np.exp(-(scipy.spatial.distance.squareform(pdist(X)) ** 2))
    terms = [one**gamma for gamma in gammas_of(kernel)]
    assert len(terms) == n
    expected = sum(terms) if "sum" in name else np.prod(terms, axis=0)
    np.testing.assert_allclose(kernel(X), expected, rtol=1e-11)
    model = KernelPCA(2, kernel=kernel).fit(X)
    model.save(tmp_path / "model.npz")
    again = [load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    for other in (*again, clone(model)):
        assert other.kernel == kernel
        assert hash(other.kernel) == hash(kernel)
        assert repr(other.kernel) == repr(kernel)
    for other in again:
        np.testing.assert_array_equal(other.transform(X), model.transform(X))


def gammas_of(kernel: Kernel) -> list[float]:
    return [value for name, value in kernel.get_params().items() if name.endswith("gamma")]


@pytest.mark.parametrize("wrap", [exp, lambda k: 0.5 * k, lambda k: k**2, lambda k: modulate(k, np.ones_like)])
def test_kernels_nested_too_deeply_say_so(wrap):
    kernel = functools.reduce(lambda k, _: wrap(k), range(99), RBF(0.1))
    with pytest.raises(InvalidParameterError, match="101 levels of nested kernels; at most 100"):
        wrap(kernel)
    assert clone(kernel) == kernel
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert hash(copy.deepcopy(kernel)) == hash(kernel)
    assert len(repr(kernel)) > 400


def test_a_kernel_is_not_changed_by_its_use():
    kernel = RBF("scale") + Polynomial(2)
    before = repr(kernel)
    kernel(rows(5, 2, "float64"))
    kernel.resolve(rows(5, 2, "float64"))
    assert repr(kernel) == before
    assert kernel.k1.gamma == "scale"


def test_a_subclass_must_define_its_tile():
    class Empty(Kernel):
        pass

    with pytest.raises(AttributeError, match="Empty must define tile"):
        Empty()(np.ones((2, 2)))


@pytest.mark.parametrize("far", [1.0, 1e6, 1e100])
def test_far_new_rows_meet_training_rows_that_are_all_the_same(xp, far):
    kernel = RationalQuadratic(0.3, 0.1)
    X, Y = np.full((5, 4), 2.0), far * rows(6, 4, "float64", 3)
    trained = kernel.prepare(xp.array(X))
    found = xp.host(kernel.tile(kernel.prepare(xp.array(Y), like=trained.template), trained))
    wanted = (1.0 + 3.0 * np.sum((Y - 2.0) ** 2, axis=1)) ** -0.1
    np.testing.assert_allclose(found, np.repeat(wanted[:, None], 5, axis=1), rtol=1e-12)


# -- gamma -------------------------------------------------------------------------------------------------------------


@each("kernel", [RBF, Laplacian, Matern, RationalQuadratic, Sigmoid, Polynomial])
def test_gamma_rules_follow_their_formulas(xp, kernel):
    X = rows(31, 4, "float64", 14) * np.array([1.0, 2.0, 3.0, 4.0]) + 5.0
    a = xp.array(X)
    assert kernel().resolve(a).gamma == 0.25
    scale, median = 1 / (4 * X.var()), 1 / (2 * np.median(pdist(X)) ** 2)
    if kernel is Laplacian:  # one over a length
        scale, median = 1 / (4 * X.std()), 1 / (np.median(pdist(X)) * 8**0.5)
    assert kernel(gamma="scale").resolve(a).gamma == pytest.approx(scale, rel=1e-14)
    assert kernel(gamma="median").resolve(a).gamma == pytest.approx(median, rel=1e-14)


def test_gamma_scale_survives_an_offset_in_float32(xp):
    X = (rows(200, 3, "float64", 15) + 1e4).astype(np.float32)
    expected = 1 / (3 * X.astype(np.float64).var())
    assert RBF("scale").resolve(xp.array(X)).gamma == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("unit", [1e-25, 1.0, 1e25])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_gamma_scale_of_sparse_rows_is_that_of_dense_ones(unit, offset):
    X = rows(30, 4, "float64", 15) + offset
    X[::3] = 0.0 if offset == 0.0 else X[::3]
    X = (unit * X).astype(np.float32)
    sparse = scipy.sparse.csr_array(X)
    assert RBF("scale").resolve(sparse).gamma == pytest.approx(RBF("scale").resolve(X).gamma, rel=1e-12)
    halves = scipy.sparse.csr_array(
        (np.repeat(sparse.data / 2, 2), np.repeat(sparse.indices, 2), 2 * sparse.indptr), shape=X.shape
    )
    assert RBF("scale").resolve(halves).gamma == pytest.approx(RBF("scale").resolve(X).gamma, rel=1e-12)
    assert halves.data.size == 2 * sparse.data.size


def test_the_median_of_many_rows_is_that_of_a_seeded_sample(xp):
    X = rows(1500, 2, "float64", 16)
    first, second = (RBF("median").resolve(xp.array(X)).gamma for _ in range(2))
    assert first == second
    assert first == pytest.approx(1 / (2 * np.median(pdist(X)) ** 2), rel=0.1)
    assert first == RBF("median").resolve(X).gamma


@each("n", [2, 249, 250, 251, 600])
@each("offset", [0.0, 1e6])
def test_the_median_of_wide_rows_is_that_of_differences(n, offset):
    X = rows(n, 40, "float64", 21) + offset
    assert RBF("median").resolve(X).gamma == pytest.approx(1 / (2 * np.median(pdist(X)) ** 2), rel=1e-12)


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("empty", [0, 7])
def test_the_median_of_rows_wider_than_a_panel_is_that_of_differences(xp, sizes, duplicates, empty):
    sizes(PANEL_ENTRIES=blocking.PerDevice(6000, 6000))
    d = 200
    X = np.where(rows(60, d, "float64", 22) > 0.0, rows(60, d, "float64", 23), 0.0)
    X[:, :empty] = 0.0
    if duplicates:
        X[50:] = X[:10]
    distances = pdist(X)
    expected = 1 / (2 * np.median(distances[distances > 0]) ** 2)
    for data in (xp.array(X), scipy.sparse.csr_array(X), scipy.sparse.csr_matrix(X)):
        assert RBF("median").resolve(data).gamma == pytest.approx(expected, rel=1e-12)
        assert RBF("scale").resolve(data).gamma == pytest.approx(1 / (d * X.var()), rel=1e-12)


def test_the_median_of_wide_rows_looks_past_duplicates_and_rows_far_out():
    X = rows(60, 40, "float64", 22)
    expected = RBF("median").resolve(X).gamma
    assert RBF("median").resolve(np.repeat(X, 5, axis=0)).gamma == pytest.approx(expected, rel=0.02)
    far = np.concatenate([X, np.full((1, 40), 1e100)])
    assert RBF("median").resolve(far).gamma == pytest.approx(expected, rel=0.05)


def test_rows_that_differ_by_rounding_alone_are_one_row_to_the_median(xp, dtype):
    X = np.repeat(rows(9, 4, dtype, 18), 5, axis=0)
    noise = 5 * tolerances.eps(dtype) * rows(45, 4, dtype, 19)
    noisy = RBF("median").resolve(xp.array(X + noise.astype(dtype))).gamma
    assert noisy == pytest.approx(RBF("median").resolve(xp.array(X)).gamma, rel=200 * tolerances.eps(dtype))


def test_rounding_of_a_row_that_most_rows_repeat_is_no_distance(xp, dtype):
    X = np.concatenate([rows(20, 3, dtype, 18), np.ones((25, 3), dtype=dtype)])
    noise = 5 * tolerances.eps(dtype) * rows(45, 3, dtype, 19)
    noisy = RBF("median").resolve(xp.array(X + noise.astype(dtype))).gamma
    assert noisy == pytest.approx(RBF("median").resolve(xp.array(X)).gamma, rel=200 * tolerances.eps(dtype))


@pytest.mark.parametrize("outlier", [1e6, 1e100])
def test_the_median_is_not_moved_by_one_row_far_out(outlier):
    X = rows(200, 3, "float64", 20)
    far = np.concatenate([X, np.full((1, 3), outlier)])
    assert RBF("median").resolve(far).gamma == pytest.approx(RBF("median").resolve(X).gamma, rel=0.05)


@pytest.mark.parametrize("rule", ["scale", "median"])
def test_data_without_spread_fall_back_to_one_over_d(xp, rule):
    assert RBF(rule).resolve(xp.array(np.ones((5, 4)))).gamma == 0.25


@pytest.mark.parametrize("rule", ["scale", "median"])
@pytest.mark.parametrize("exponent", [300, -300])
def test_gamma_rules_make_the_kernel_independent_of_the_unit(rule, exponent):
    X = rows(20, 3, "float64", 17)
    for kernel in (RBF, Laplacian, Matern, RationalQuadratic):
        K, scaled = kernel(rule)(X), kernel(rule)(X * 2.0**exponent)
        assert np.max(np.abs(K - scaled)) <= tolerances.kernel("float64")
        assert 0.01 < np.median(K) < 0.99


@each("exponent", [-100, -60, 60, 100])
@each("kernel", [Polynomial(3, "scale", 1.0), Sigmoid("scale", 0.5)])
def test_inner_products_take_units_whose_gamma_float32_does_not_hold(xp, kernel, exponent):
    X = rows(20, 3, "float32", 17)
    scaled = xp.array(np.ldexp(X, exponent))
    found, wanted = xp.host(kernel(scaled)), kernel(X.astype(np.float64))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=0, atol=20 * tolerances.kernel("float32") * np.max(np.abs(wanted)))
    prepared = kernel.resolve(scaled).prepare(scaled)
    np.testing.assert_allclose(xp.host(kernel.resolve(scaled).tile_diagonal(prepared)), np.diag(wanted), rtol=1e-5)


@pytest.mark.parametrize("kernel", [RBF, Matern, RationalQuadratic])
def test_from_sigma_is_one_over_two_sigma_squared(kernel):
    assert kernel.from_sigma(2.0).gamma == 0.125
    with pytest.raises(InvalidParameterError, match="sigma"):
        kernel.from_sigma(0.0)


# -- positive semidefinite ---------------------------------------------------------------------------------------------


def test_is_psd_of_positive_definite_kernels(xp, dtype):
    X = xp.array(rows(40, 3, dtype, 18))
    for kernel in (RBF(0.5), Laplacian(0.5), Matern(0.5, 1.5), Polynomial(3, 0.5, 1.0), Linear(), Cosine()):
        assert is_psd(kernel, X)


def test_is_psd_finds_the_negative_eigenvalue_of_a_sigmoid(xp, dtype):
    # tanh(x y - 1) on {0, 1}: the diagonal entry of 0 is tanh(-1) < 0.
    assert not is_psd(Sigmoid(1.0, -1.0), xp.array(np.array([[0.0], [1.0]], dtype=dtype)))


def test_is_psd_on_a_far_narrow_range_in_float32(xp):
    """513 points from 500 to 501, length scale 1, float32: without centered features an eigenvalue is -0.1."""
    X = np.linspace(500, 501, 513, dtype=np.float32)[:, None]
    assert is_psd(RBF.from_sigma(1.0), xp.array(X))
    K = xp.host(RBF.from_sigma(1.0)(xp.array(X))).astype(np.float64)
    assert np.linalg.eigvalsh(K)[0] >= -20 * tolerances.eps("float32") * 513


# -- sparse rows -------------------------------------------------------------------------------------------------------


@each("name", sorted(set(ALL) - {"modulated", "cosine", "power", "exp", "nested"}))
@each("container", [scipy.sparse.csr_matrix, scipy.sparse.csr_array])
def test_csr_rows_equal_dense_rows(dtype, name, container):
    kernel = ALL[name][0]
    generator = np.random.default_rng(19)
    X = (generator.standard_normal((25, 8)) * (generator.random((25, 8)) < 0.4)).astype(dtype)
    Y = X[:9] * np.float32(0.5)
    dense, bound = kernel(X), tolerances.kernel(dtype, max(1.0, np.max(np.abs(kernel(X)))) * 2)
    K = kernel(container(X))
    assert K.dtype == X.dtype
    assert np.array_equal(K, K.T)
    assert np.max(np.abs(K - dense)) <= bound
    assert np.max(np.abs(kernel(container(X), container(Y)) - kernel(X, Y))) <= bound
    assert np.max(np.abs(kernel.diagonal(container(X)) - kernel.diagonal(X))) <= bound


def test_csr_cosine_with_empty_rows(dtype):
    X = np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.0, 3.0, 1.0]], dtype=dtype)
    with pytest.warns(RankWarning):
        K = Cosine()(scipy.sparse.csr_array(X))
    assert np.max(np.abs(K - oracle.gram(oracle.cosine, X))) <= tolerances.kernel(dtype)


# -- other people's kernels --------------------------------------------------------------------------------------------


def length(gamma: float) -> float:
    return 1 / math.sqrt(2 * gamma)


PEERS = [
    *((Matern(g, nu), process.Matern(length(g), nu=nu)) for g in (0.05, 0.8, 7.0) for nu in (0.5, 1.5, 2.5, math.inf)),
    *((RationalQuadratic(G, alpha), process.RationalQuadratic(length(G), alpha)) for alpha in (0.3, 1.0, 20.0)),
]


@each("kernel, peer", PEERS)
def test_kernels_equal_those_of_scikit_learn_with_the_same_length_scale(kernel, peer):
    X = rows(30, 3, "float64", 21)
    assert np.max(np.abs(kernel(X) - peer(X))) <= 1e-13


PROCESS_KERNELS = [
    process.ConstantKernel(2.0) * process.RBF(1.3) + process.Matern(0.8, nu=1.5),
    process.RationalQuadratic(1.2, 0.7),
    process.RBF([0.5, 1.0, 2.0]),
    process.ExpSineSquared(1.5, 2.0) + process.DotProduct(0.5),
]


@pytest.mark.filterwarnings("ignore:the kernel matrix has negative")
@pytest.mark.parametrize("kernel", PROCESS_KERNELS, ids=str)
def test_process_kernels_of_scikit_learn_work_by_blocks(kernel):
    X, new = rows(70, 3, "float64", 23), rows(9, 3, "float64", 24)
    model = KernelPCA(3, kernel=kernel).fit(X)
    values, _ = oracle.eigenpairs(oracle.centered(kernel(X)), 3)
    assert np.max(np.abs(model.eigenvalues_ - values)) <= tolerances.eigenvalue("float64") * values[0] * 2
    expected = oracle.projected(kernel(new, X), kernel(X), 3)
    assert np.max(np.abs(oracle.up_to_sign(model.transform(new), expected) - expected)) <= 1e-11


def test_block_callables_answer_where_they_were_asked(xp, dtype):
    kernel = BlockCallable(lambda A, B: A @ B.T)
    X = rows(12, 3, dtype, 25)
    K = kernel(xp.array(X))
    assert xp.owns(K)
    assert K.dtype == xp.dtype(dtype)
    assert np.max(np.abs(xp.host(K) - X @ X.T)) <= tolerances.kernel(dtype, 10.0)


def test_pairwise_callables_are_called_for_every_pair(xp):
    kernel = PairwiseCallable(lambda x, y, power: float(x @ y) ** power, {"power": 2})
    X, Y = rows(6, 3, "float64", 26), rows(4, 3, "float64", 27)
    K = xp.host(kernel(xp.array(X), xp.array(Y)))
    assert np.max(np.abs(K - (X @ Y.T) ** 2)) <= 1e-13
    K = xp.host(kernel(xp.array(X)))
    assert np.max(np.abs(K - (X @ X.T) ** 2)) <= 1e-13


# -- properties --------------------------------------------------------------------------------------------------------

FINITE = arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 3)), elements=st.floats(-1e3, 1e3))
ANY_SIZE = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 2)), elements=st.floats(-1e300, 1e300))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(FINITE)
def test_property_symmetric_unit_diagonal_and_bounded(X):
    for name in DISTANCE:
        K = DISTANCE[name][0](X)
        assert np.array_equal(K, K.T)
        assert np.all(np.diag(K) == 1.0)
        assert np.all(K >= 0.0)
        assert np.all(K <= 1.0)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(FINITE)
def test_property_blocks_equal_the_oracle(X):
    for name in DISTANCE:
        kernel, k = DISTANCE[name]
        assert np.max(np.abs(kernel(X) - oracle.gram(k, X))) <= 2e-10


@settings(max_examples=25, deadline=None, derandomize=True)
@given(ANY_SIZE)
def test_property_numbers_of_any_size_stay_finite(X):
    for name in DISTANCE:
        K = DISTANCE[name][0](X)
        assert np.all(np.isfinite(K))
        assert np.all((K >= 0.0) & (K <= 1.0))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(FINITE, st.floats(1e-6, 1e3))
def test_property_a_rectangle_is_a_part_of_the_square(X, gamma):
    K, part = RBF(gamma)(X), RBF(gamma)(X, X[:2])
    assert np.max(np.abs(K[:, :2] - part)) <= 2e-10


# -- what pre-images ask of a kernel -----------------------------------------------------------------------------------

RADIAL = {
    "rbf": kernels.RBF(0.3),
    "rational quadratic": kernels.RationalQuadratic(0.3, 1.7),
    "matern 0.5": kernels.Matern(0.3, 0.5),
    "matern 1.5": kernels.Matern(0.3, 1.5),
    "matern 2.5": kernels.Matern(0.3, 2.5),
    "matern inf": kernels.Matern(0.3, math.inf),
    "a multiple": 2.5 * kernels.Matern(0.2, 2.5),
    "a sum": kernels.RBF(0.3) + 2.0 * kernels.RationalQuadratic(0.2),
    "a product": kernels.RBF(0.3) * kernels.Matern(0.2, 2.5),
    "a sum with a constant": kernels.RBF(0.3) + kernels.RationalQuadratic(0.0) + 2.0 * kernels.Matern(0.0, 2.5),
    "a product with a constant": kernels.RBF(0.0) * kernels.RBF(0.3),
    "a power": (2.0 * kernels.Matern(0.3, 2.5)) ** 3,
    "a first power": kernels.RBF(0.3) ** 1,
    "an exponential": kernels.exp(0.5 * kernels.RationalQuadratic(0.3)),
    "all at once": kernels.exp(kernels.RBF(0.1)) * (kernels.RBF(0.1) + 3.0 * kernels.Matern(0.2, 1.5)) ** 2,
}


# Kernels whose values have a closed form for the distance.
CLOSED_FORM = [name for name in RADIAL if name.startswith(("rbf", "matern", "rational")) or name == "a multiple"]


@each("name", RADIAL)
def test_the_slope_of_a_radial_kernel_is_minus_its_derivative_by_the_squared_distance(xp, name):
    kernel = RADIAL[name]
    slope = kernel.slope()
    if name == "matern 0.5":
        assert slope is None
        return
    squares, step = np.array([[0.2], [1.0], [4.0]]), 1e-5
    origin = np.zeros((1, 1))
    ahead, behind = (kernel(np.sqrt(squares + sign * step), origin) for sign in (1, -1))
    found = xp.host(slope(xp.array(np.sqrt(squares)), xp.array(origin)))
    np.testing.assert_allclose(found, (behind - ahead) / (2 * step), rtol=1e-8)


@pytest.mark.parametrize("kernel", [kernels.Linear(), kernels.Laplacian(0.3), kernels.Polynomial(3, 0.3)])
def test_kernels_that_are_no_smooth_function_of_the_distance_have_no_slope(kernel):
    assert kernel.slope() is None
    assert (kernel + kernels.RBF(0.3)).slope() is None
    assert (kernel * kernels.RBF(0.3)).slope() is None
    assert (2.0 * kernel).slope() is None
    assert (kernel**2).slope() is None
    assert exp(kernel).slope() is None
    assert (kernels.RBF(0.3) ** 0).slope() is None


@pytest.mark.parametrize("name", CLOSED_FORM)
def test_values_of_a_radial_kernel_give_the_distance(name):
    kernel = RADIAL[name]
    assert kernel.inverts_to == "distances"
    assert kernel.depends_on_distance
    squares = np.array([0.0, 1e-3, 0.1, 1.0, 20.0])
    values = kernel(np.sqrt(squares)[:, None], np.zeros((1, 1)))[:, 0]
    np.testing.assert_allclose(kernel.square_distances(values[0] - values), squares, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("name", [name for name in RADIAL if name not in CLOSED_FORM])
def test_values_of_combined_radial_kernels_are_not_inverted(name):
    assert RADIAL[name].inverts_to is None
    assert RADIAL[name].depends_on_distance


@pytest.mark.parametrize(
    "kernel",
    [kernels.RBF(0.3) + Linear(), exp(Linear()), modulate(kernels.RBF(0.3), lambda X: X[:, 0]), 2.0 * Linear()],
    ids=["a sum", "an exponential", "modulated", "a multiple"],
)
def test_other_kernels_do_not_depend_on_the_distance_alone(kernel):
    assert kernel.inverts_to is None
    assert not kernel.depends_on_distance


@pytest.mark.parametrize("degree", [1, 2, 2.5, 3, 4])
def test_values_of_a_polynomial_give_the_inner_product(degree):
    kernel = 3.0 * kernels.Polynomial(degree, 0.3, 1.0)
    assert kernel.inverts_to == "products"
    products = np.array([-10.0 if degree in (1, 3) else -3.0, 0.0, 0.5, 7.0])
    values = 3.0 * (0.3 * products + 1.0) ** degree
    np.testing.assert_allclose(kernel.inner_products(values), products, rtol=1e-10, atol=1e-12)
    assert kernels.Polynomial(0, 0.3).inverts_to is None
    assert (kernel + kernel).inverts_to is None


def test_no_rows_are_an_empty_block_unless_the_kernel_takes_its_scale_from_them():
    none, Y = np.empty((0, 4)), np.ones((3, 4))
    assert Linear()(none, Y).shape == (0, 3)
    assert Linear().diagonal(none).shape == (0,)
    assert RBF()(Y, none).shape == (3, 0)
    for kernel in (RBF(), RBF(1.0), RBF("scale"), Laplacian("median")):
        with pytest.raises(InvalidParameterError, match="a minimum of 1 is required"):
            kernel(none, Y)


FAR_FROM = {
    "rbf": (kernels.RBF, lambda T: np.exp(-T)),
    "rational": (lambda g: kernels.RationalQuadratic(g, 0.5), lambda T: (1.0 + 2.0 * T) ** -0.5),
    "matern 3/2": (lambda g: kernels.Matern(g, 1.5), lambda T: (1.0 + np.sqrt(6.0 * T)) * np.exp(-np.sqrt(6.0 * T))),
    "matern 1/2": (lambda g: kernels.Matern(g, 0.5), lambda T: np.exp(-np.sqrt(2.0 * T))),
}


@pytest.mark.parametrize("name", FAR_FROM)
def test_rows_near_each_other_keep_their_distances_beside_a_far_one(xp, name):
    make, function = FAR_FROM[name]
    X = np.random.default_rng(0).standard_normal((12, 3))
    for far in (1e100, 1e155, 1e300, 1.7e308):
        X[4] = [far, -far, 0.5 * far]
        others = np.delete(np.arange(12), 4)
        near = X[others]
        with np.errstate(over="ignore"):
            T = ((near[:, None, :] - near[None, :, :]) ** 2).sum(axis=2)
        for gamma in (1e-5, 1.0, 1e5):
            for rows in (xp.array(X), scipy.sparse.csr_array(X)):
                K = gram_matrix(make(gamma), rows)
                K = K if isinstance(K, np.ndarray) else xp.host(K)
                np.testing.assert_allclose(K[np.ix_(others, others)], function(gamma * T), rtol=0, atol=1e-12)
                assert np.max(np.abs(K[4, others])) <= 1e-90
                assert K[4, 4] == 1.0
        # A factor as small as the square is large.
        gamma = 1.0 / (1.5 * min(far, 1e153)) ** 2
        K = xp.host(gram_matrix(make(gamma), xp.array(X), xp.array(X[3:5])))
        apart = float(function(np.float64(min(far / min(far, 1e153), 1e100)) ** 2))  # 1 + 1 + 1/4 = 1.5²
        np.testing.assert_allclose(K[others, 0], 1.0, rtol=0, atol=1e-12)
        np.testing.assert_allclose(K[4], [apart, 1.0], rtol=0, atol=1e-12)
