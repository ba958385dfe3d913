"""Bounds on angles of eigenvectors: thousands of hostile matrices beside LAPACK, and rules that these refute."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from gpukpca.eigen.angles import eigenvalue_bounds, sines_of_angles

EPS = float(np.finfo(np.float64).eps)


SPECTRA = {
    "geometric": lambda n, rng: 10.0 ** (-np.arange(n) * rng.uniform(0.05, 1.5)),
    "power": lambda n, rng: np.arange(1.0, n + 1) ** -rng.uniform(0.3, 3.0),
    "clusters": lambda n, rng: (
        np.repeat(0.5 ** np.arange(n), 3)[:n] * (1 + 10.0 ** rng.uniform(-15, -1) * rng.random(n))
    ),
    "equal": lambda n, rng: np.repeat(3.0 ** -np.arange(n), rng.integers(1, 5, n))[:n],
    "flat": lambda n, rng: 1.0 + 10.0 ** rng.uniform(-12, -1) * rng.random(n),
    "low rank": lambda n, rng: (np.arange(n) < rng.integers(0, n + 1)) / np.arange(1.0, n + 1),
    "one large": lambda n, rng: np.append(1.0, 1e-9 * rng.random(n - 1)),
    "indefinite": lambda n, rng: rng.standard_normal(n),
    "integers": lambda n, rng: np.round(2.0 * rng.standard_normal(n)),
    "negative": lambda n, rng: -rng.random(n),
}
VECTORS = ("exact", "perturbed", "rotated", "skew", "skipped", "permuted", "twice", "zero", "random", "iterated")


def vectors(kind, A, V, p, rng):
    """Unit columns (n, p), or zeros, from the true eigenvectors V."""
    n = len(A)
    U = V[:, :p] + 10.0 ** rng.uniform(-14, -0.5) * rng.standard_normal((n, p)) * (kind != "exact")
    if kind == "rotated":
        U = U @ np.linalg.qr(rng.standard_normal((p, p)))[0]
    elif kind == "skipped":
        U = np.delete(V, rng.integers(0, p), axis=1)[:, :p] if p < n else U
    elif kind == "permuted":
        U = U[:, rng.permutation(p)]
    elif kind == "twice":
        U[:, -1] = U[:, 0]
    elif kind == "random":
        U = rng.standard_normal((n, p))
    elif kind == "iterated":
        U = A @ (A @ rng.standard_normal((n, p)))
    if kind not in ("skew", "zero", "twice"):
        U = np.linalg.qr(U)[0]
        return U * np.sign(rng.standard_normal(p))
    U = U + 0.3 * rng.random() * U[:, :1] * (kind == "skew")
    if kind == "zero":
        U[:, rng.integers(0, p)] = 0.0
    return U / np.maximum(np.linalg.norm(U, axis=0), 1e-300)


def measured(A, U):
    """T, S and R as an audit computes them, and the orthonormal basis."""
    Q, sizes, _ = np.linalg.svd(U, full_matrices=False)
    Q = Q[:, : max(1, int(np.sum(sizes > 10.0 * EPS * sizes[0])))]
    T = Q.T @ A @ Q
    T = (T + T.T) / 2.0
    rest = A @ Q - Q @ T
    return T, rest.T @ rest, Q.T @ U, Q


def sine_between(U, true):
    """The sine of the largest angle between the spans of two blocks of as many columns; 1 where one is dependent."""
    left, sizes, _ = np.linalg.svd(U, full_matrices=False)
    if sizes[-1] < 1e-12:
        return 1.0
    return float(np.linalg.norm(left - true @ (true.T @ left), 2))


def sources(values, A, Q, p, rng):
    """What may be known of the eigenvalues, as pairs of `missed` and `known`."""
    n, free = len(values), np.full(p + 1, math.inf)
    if Q.shape[1] == n:
        yield -math.inf, free
    C = A - Q @ (Q.T @ A)
    C = C - (C @ Q) @ Q.T
    yield float(np.linalg.norm(C)), free  # Frobenius
    yield float(max(np.linalg.eigvalsh(C)[-1], 0.0)), free
    if values[-1] >= 0.0:
        yield float(max(np.trace(C), 0.0)) + 50.0 * EPS * np.trace(A), free
    width, past = 10.0 ** rng.uniform(-12, 0), np.append(values, -math.inf)[: p + 1]
    yield math.inf, past + width  # of landmarks
    yield math.inf, np.append(free[:p], past[p])  # of a solver that knows all


def spectral_gap(values, first, last):
    """The distance of eigenvalues first to last - 1 from the others."""
    above = values[first - 1] - values[first] if first else math.inf
    return min(above, values[last - 1] - values[last] if last < len(values) else math.inf)


def matrix_of(values, rng):
    """A matrix with these eigenvalues, and what LAPACK says of it, descending."""
    V = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    A = V * values @ V.T
    A = (A + A.T) / 2.0
    return A, *(part[..., ::-1] for part in np.linalg.eigh(A))


def test_no_angle_and_no_eigenvalue_exceeds_its_bound():
    rng, checked, known_of = np.random.default_rng(0), 0, dict.fromkeys(VECTORS, 0)
    for number, (kind, how) in enumerate(itertools.product(SPECTRA, VECTORS * 4)):
        n = int(rng.integers(1, 26))
        p = int(rng.integers(1, n + 1)) if number % 7 else n
        A, values, V = matrix_of(np.sort(SPECTRA[kind](n, rng))[::-1] * 10.0 ** rng.uniform(-3, 3), rng)
        U, size = vectors(how, A, V, p, rng), float(np.max(np.abs(values))) or 1.0
        T, S, R, Q = measured(A, U)
        rounding = 20.0 * EPS * size
        for missed, known in sources(values, A, Q, p, rng):
            lower, upper = eigenvalue_bounds(T, S, missed + rounding, known + rounding, rounding)
            assert np.all(lower <= values[:p] + rounding)
            assert np.all(np.append(values, -math.inf)[: p + 1] <= upper + rounding)
            angles, groups = sines_of_angles(T, S, R, (lower, upper), rounding, EPS)
            assert np.all(np.isnan(angles[groups < 0]))
            for group in np.unique(groups[~np.isnan(angles)]):
                members = np.flatnonzero(groups == group)
                first, last = members[0], members[-1] + 1
                bound, true = angles[first], sine_between(U[:, first:last], V[:, first:last])
                slack = 100.0 * EPS * (1.0 + size / spectral_gap(values, first, last))  # of LAPACK's vectors
                assert np.array_equal(angles[first:last], np.full(last - first, bound))
                assert 0.0 <= bound < 1.0
                assert true <= bound + slack, (kind, how, n, p, members, true, bound)
                checked += 1
                known_of[how] += 1
    assert checked > 3000
    assert min(known_of.values()) > 20


def test_a_bound_is_that_of_davis_and_kahan_where_residuals_are_small_beside_gaps():
    """Nearly r over the true gap, and within a few times the angle of vectors that err at random."""
    rng, ratios = np.random.default_rng(1), []
    for number in range(200):
        n = int(rng.integers(6, 26))
        p = int(rng.integers(1, n - 1))
        A, values, V = matrix_of(np.linspace(1.0, 0.0, n) + 0.2 / n * rng.random(n), rng)
        U = np.linalg.qr(V[:, :p] + 10.0 ** rng.uniform(-8, -4) * rng.standard_normal((n, p)))[0]
        U *= np.sign(np.sum(U * V[:, :p], axis=0))
        T, S, R, Q = measured(A, U)
        inside = A - Q @ (Q.T @ A)
        missed = float(np.linalg.eigvalsh(inside - (inside @ Q) @ Q.T)[-1])
        known = np.full(p + 1, math.inf)
        if number % 2:
            missed, known[p] = math.inf, values[p]
        bounds = eigenvalue_bounds(T, S, missed + 1e-14, known + 1e-14, 1e-14)
        angles, groups = sines_of_angles(T, S, R, bounds, 1e-14, EPS)
        assert np.array_equal(groups, np.arange(p))
        residual = np.linalg.norm(A @ U - U * np.sum(U * (A @ U), axis=0), axis=0)
        gaps = [spectral_gap(values, i, i + 1) for i in range(p)]
        assert np.all(angles <= 1.05 * residual / gaps + 1e-12)
        ratios += [angles[i] / sine_between(U[:, i : i + 1], V[:, i : i + 1]) for i in range(p)]
    assert 1.0 < np.median(ratios) < 10.0


def test_stated_eigenvalues_and_gaps_within_a_group_would_vouch_for_wrong_vectors():
    rng = np.random.default_rng(2)
    for close in (0.0, 1e-13, 1e-10):
        values = np.array([5.0, 4.0, 3.0, 1.0 + close, 1.0, 0.2])
        A, values, V = matrix_of(values, rng)
        rounding, free = 1e-13, math.inf
        # A solver missed eigenvalue 2: its pairs are perfect, and far from each other.
        U = V[:, [0, 2]]
        T, S, R, _ = measured(A, U)
        naive = math.sqrt(np.max(np.diag(S))) / 2.0  # the gap of the stated 5 and 3
        assert naive < 1e-14
        assert sine_between(U[:, 1:], V[:, 1:2]) == pytest.approx(1.0)
        for missed in (4.0, free, values.sum() - np.trace(T)):  # the truth, nothing, and the trace
            bounds = eigenvalue_bounds(T, S, missed + rounding, np.full(3, free), rounding)
            angles, groups = sines_of_angles(T, S, R, bounds, rounding, EPS)
            assert np.isnan(angles[1])
            assert (groups[1] == -1) or missed == 4.0
        # Vectors 4 and 5 rotated among each other: their residuals are small beside the gap to 3 and 0.2.
        half = V[:, 3:5] @ np.array([[0.6, -0.8], [0.8, 0.6]])
        U = np.concatenate([V[:, :3], half], axis=1)
        T, S, R, _ = measured(A, U)
        residual = np.linalg.norm(A @ half - half * np.sum(half * (A @ half), axis=0), axis=0)
        assert np.max(residual / 0.8) < 1e-9
        assert sine_between(U[:, 3:4], V[:, 3:4]) > 0.1 or close == 0.0  # of equal ones LAPACK's choice is free
        bounds = eigenvalue_bounds(T, S, 0.2 + rounding, np.full(6, free), rounding)
        angles, groups = sines_of_angles(T, S, R, bounds, rounding, EPS)
        assert groups.tolist() == [0, 1, 2, 3, 3]
        assert sine_between(U[:, 3:], V[:, 3:5]) <= angles[3] == angles[4] < 1e-11


def test_vectors_that_are_rotated_across_gaps_become_a_group():
    A, _, V = matrix_of(np.array([5.0, 4.0, 3.0, 1.0, 0.5, 0.2]), np.random.default_rng(3))
    turn = np.eye(4)
    turn[1:3, 1:3] = [[0.6, -0.8], [0.8, 0.6]]
    U = V[:, :4] @ turn
    T, S, R, _ = measured(A, U)
    bounds = eigenvalue_bounds(T, S, 0.5, np.full(5, math.inf), 1e-13)
    assert np.all(bounds[0] > bounds[1][1:])  # every gap is known
    angles, groups = sines_of_angles(T, S, R, bounds, 1e-13, EPS)
    assert groups.tolist() == [0, 1, 1, 2]
    assert np.max(angles) < 1e-11


def test_bounds_index_for_index_are_used_where_the_complement_is_not_bounded():
    known = np.array([3.1, 2.1, 1.1, 0.9])
    T, S = np.diag([3.0, 2.0, 1.0]), 0.25 * np.eye(3)
    bounds = eigenvalue_bounds(T, S, math.inf, known, 0.0)
    assert np.array_equal(bounds[0], [3.0, 2.0, 1.0])
    assert np.array_equal(bounds[1], known)
    angles, groups = sines_of_angles(T, S, np.eye(3), bounds, 0.0, EPS)
    assert angles[:2] == pytest.approx([0.5 / 0.9, 0.5 / 0.9])
    assert np.isnan(angles[2])  # 1 - 0.9 is less than the residual
    assert groups.tolist() == [0, 1, 2]


def test_vectors_of_a_group_that_are_nearly_dependent_have_the_digits_of_their_difference():
    T, S = np.diag([1.0, 1.0, 0.1]), np.zeros((3, 3))
    bounds = eigenvalue_bounds(T, S, 0.0, np.full(4, math.inf), 0.0)
    for difference, least, most in ((1.0, 0.0, 1e-14), (1e-6, 1e-10, 1e-8), (1e-15, math.nan, math.nan)):
        R = np.array([[1.0, 1.0, 0.0], [0.0, difference, 0.0], [0.0, 0.0, 1.0]])
        angles, groups = sines_of_angles(T, S, R / np.linalg.norm(R, axis=0), bounds, 0.0, EPS)
        assert groups.tolist() == [0, 0, 1]
        assert np.isnan(angles[0]) if math.isnan(least) else least < angles[0] < most
        assert angles[2] < 1e-14


def test_without_vectors_or_bounds_nothing_is_known():
    empty = np.zeros((0, 0))
    for p, T in ((0, empty), (2, np.diag([2.0, 1.0]))):
        bounds = eigenvalue_bounds(T, 0.0 * T, math.inf, np.full(p + 1, math.inf), 1e-15)
        angles, groups = sines_of_angles(T, 0.0 * T, np.eye(p), bounds, 1e-15, EPS)
        assert np.all(np.isnan(angles))
        assert groups.tolist() == [-1] * p
