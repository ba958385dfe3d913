"""Bounds on ‖E‖₂ from a few rows: never below but for the stated probability, and every tempting short cut is."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.special import rel_entr
from scipy.stats import binom

from gpukpca.eigen import norm_bound
from gpukpca.eigen.norm_bound import (
    BETS,
    FAILURE,
    SMALLEST_SAMPLE,
    bound_of_draws,
    entrywise_powers,
    largest_eigenvalue,
    powers_of_draws,
    share_bound,
    smallest_share,
    split_of,
)

FAILURES = (0.25, 0.05, 1e-3, FAILURE)


def orthonormal(n, rng):
    return np.linalg.qr(rng.standard_normal((n, n)))[0]


def spiked(n, rng):
    return rng.standard_normal((n, 30)) * np.where(np.arange(30) < 2, 3.0, 0.3)


def clusters(n, rng):
    return rng.standard_normal((4, 6))[rng.integers(0, 4, n)] * rng.exponential(1.0, (n, 1))


def giant(n, rng):
    rows = rng.standard_normal((n, 8))
    rows[rng.integers(n)] *= 30.0
    return rows


def halved(n, rng):
    return rng.standard_normal((n, 5)) * (np.arange(n) % 2)[:, None]


# Rows φ_i of E = ΦΦᵀ.
FAMILIES = {
    "rank one": lambda n, rng: rng.standard_normal((n, 1)),
    "spiked": spiked,
    "clusters of parallel rows": clusters,
    "Cauchy": lambda n, rng: rng.standard_cauchy((n, 5)),
    "giant row": giant,
    "duplicates": lambda n, rng: rng.standard_normal((3, 3))[rng.integers(0, 3, n)],
    "flat": lambda n, rng: np.eye(n),
    "Haar": lambda n, rng: orthonormal(n, rng)[:, : max(1, n // 3)],
    "half zeros": halved,
    "d above E_ii": spiked,
}


def problems(repeats, seed):
    """Yield the family, E, its norm and d of matrices of all families."""
    rng = np.random.default_rng(seed)
    for name, _ in itertools.product(FAMILIES, range(repeats)):
        rows = FAMILIES[name](int(rng.integers(20, 150)), rng)
        E = rows @ rows.T
        d = np.diagonal(E).copy()
        if name == "d above E_ii":
            d = d * rng.uniform(1.0, 3.0, len(d)) + 0.1 * d.mean()
        yield name, E, float(np.linalg.norm(rows, 2) ** 2), d


def drawn(E, d, chosen):
    """Return C of the drawn rows, repeats kept."""
    return E[np.ix_(chosen, chosen)] / np.sqrt(np.outer(d[chosen], d[chosen]))


def chernoff(q, s, failure):
    """Return the largest p with s kl(q, p) <= log(1 / failure)."""
    low, high = q, 1.0
    for _ in range(50):
        p = (low + high) / 2.0
        low, high = (p, high) if s * (rel_entr(q, p) + rel_entr(1.0 - q, 1.0 - p)) <= -math.log(failure) else (low, p)
    return high


def most(n, failure):
    """Return a number of failures that n draws exceed with probability 1e-4 at most."""
    return binom.ppf(1.0 - 1e-4, n, failure)


def test_bounds_of_hostile_matrices_fail_no_more_often_than_they_say():
    rng, counts = np.random.default_rng(1), np.zeros(len(FAILURES))
    by_family: dict[str, list[bool]] = {}
    n_draws = 0
    for name, E, norm, d in problems(12, 0):
        for s in (10, 30, 100):
            powers = entrywise_powers(drawn(E, d, rng.choice(len(d), s, p=d / d.sum())))
            shares = np.array([share_bound(powers, s, failure) for failure in FAILURES])
            below = shares * d.sum() < norm * (1.0 - 1e-12)
            n_draws, counts = n_draws + 1, counts + below
            by_family.setdefault(name, []).append(bool(below[0]))
            # Not vacuous: never above Σd, and by no more than this above Chernoff's bound for the same Λ₁.
            assert np.all(np.diff(shares) >= 0.0)
            assert shares[-1] <= 1.0
            for share, failure, worst in zip(shares, FAILURES, (1.25, 1.15, 1.1, 1.07), strict=True):
                assert share <= worst * chernoff(min(powers[0] / s, 1.0), s, failure)
    assert len(by_family) == 10
    assert counts[-1] == 0
    assert np.all(counts <= [most(n_draws, failure) for failure in FAILURES])
    assert all(sum(below) <= most(len(below), FAILURES[0]) for below in by_family.values())


def test_the_worst_matrix_of_all_comes_near_the_stated_failure():
    # k of s draws are copies of one row and the others orthogonal: y is 1 or 0, and every Λ is k. A share just above
    # the bound is missed where at most k such rows are drawn.
    for s, failure in itertools.product((10, 100, 1000), FAILURES):
        misses = {"chernoff": 0.0, "powers": 0.0}
        for k in range(0, s // 2, max(1, s // 50)):
            bounds = {"chernoff": chernoff(k / s, s, failure), "powers": share_bound(np.full(3, float(k)), s, failure)}
            for name, bound in bounds.items():
                if bound < 1.0:
                    misses[name] = max(misses[name], binom.cdf(k, s, bound))
        assert all(miss <= failure * (1.0 + 1e-6) for miss in misses.values())
        assert misses["chernoff"] >= 0.99 * failure
        assert misses["powers"] >= (0.1 * failure if s >= 100 else 0.001 * failure)
    C = np.zeros((60, 60))
    C[:20, :20] = 1.0
    C[range(60), range(60)] = 1.0
    assert np.allclose(entrywise_powers(C), 20.0, rtol=0.011)


def test_a_bound_from_distinct_rows_alone_is_below_the_norm():
    rng, wrong, right, n_draws = np.random.default_rng(2), 0, 0, 0
    for name, E, norm, d in problems(6, 3):
        if name in ("rank one", "clusters of parallel rows", "giant row", "duplicates"):
            chosen = rng.choice(len(d), 100, p=d / d.sum())
            for rows, kept in ((chosen, True), (np.unique(chosen), False)):
                below = share_bound(entrywise_powers(drawn(E, d, rows)), 100) * d.sum() < norm
                right, wrong = right + (kept and below), wrong + (not kept and below)
            n_draws += 1
    assert right == 0
    assert wrong > 0.5 * n_draws


def test_rows_may_be_drawn_until_the_bound_holds_as_chernoffs_may_not():
    # Of rows in one direction, a share p of all, every Λ is their number, which is binomial.
    rng, p, failure = np.random.default_rng(4), 0.1, 0.25
    looks = np.unique(20 * np.geomspace(1.0, 1000.0, 40).astype(int))
    hits = np.cumsum(rng.binomial(np.diff(looks, prepend=0), p, (2000, len(looks))), axis=1)
    ever = {}
    for name in ("chernoff", "powers"):
        fewest = []  # hits of which the bound is not below p
        for s in looks:
            low, high = -1, int(s)
            while high - low > 1:
                k = (low + high) // 2
                powers = np.full(3, float(k))
                bound = share_bound(powers, s, failure) if name == "powers" else chernoff(k / s, s, failure)
                low, high = (k, high) if bound < p else (low, k)
            fewest.append(high)
        ever[name] = float(np.mean(np.any(hits < fewest, axis=1)))
    assert ever["chernoff"] > 1.4 * failure
    assert 0.4 * failure < ever["powers"] <= failure


def test_numbers_below_the_diagonal_break_the_bound_and_numbers_above_do_not():
    rng, n, s, below = np.random.default_rng(5), 400, 200, {}
    rows = rng.standard_normal((n, 40))
    top = np.arange(n) < 100
    rows[top] = 9.0 * np.eye(40)[0]  # a quarter of all rows, with a third of the trace
    E, norm = rows @ rows.T, float(np.linalg.norm(rows, 2) ** 2)
    exact = np.diagonal(E)
    rules = {
        "exact": exact,
        "above": exact * rng.uniform(1.0, 4.0, n),
        "with floors": exact + exact.mean(),
        "too small": np.where(top, 1e-3 * exact, exact),
        "lost to rounding": np.where(top, 0.0, exact),
    }
    for name, d in rules.items():
        below[name] = 0
        for _ in range(10):
            powers = entrywise_powers(drawn(E, d, rng.choice(n, s, p=d / d.sum())))
            below[name] += share_bound(powers, s) * d.sum() < norm
    assert below["exact"] == below["above"] == below["with floors"] == 0
    assert below["lost to rounding"] == 10
    assert below["too small"] >= 5


def spectra(s):
    return {
        "one": np.eye(1, s)[0],
        "flat": np.ones(s),
        "clustered": np.concatenate([1.0 + 1e-9 * np.arange(min(s, 9)), np.full(max(0, s - 9), 0.9)]),
        "edge": np.linspace(1.0, 0.0, s) ** 0.5,
        "powers": 0.5 ** np.arange(s),
        "gap after two": np.where(np.arange(s) < 2, 1.0, 1e-12),
        "rounding": np.where(np.arange(s) < 1, 1.0, -1e-16),
    }


def test_the_largest_eigenvalue_is_never_passed_and_met_to_one_percent():
    rng = np.random.default_rng(6)
    for s in (1, 2, 3, 60, 300):
        Q = orthonormal(s, rng)
        matrices = {name: Q * values @ Q.T for name, values in spectra(s).items()}
        Phi = rng.standard_normal((s, 2 * s))
        matrices |= {"Gram": Phi @ Phi.T, "diagonal": np.diag(rng.uniform(size=s)), "ones": np.ones((s, s))}
        for A, scale in itertools.product(matrices.values(), (1.0, 1e-300, 1e300 / s, 3e-13)):
            C = (A + A.T) / 2.0 * (scale / np.max(np.abs(A)))
            unit = np.max(np.abs(C))
            largest, before = np.linalg.eigvalsh(C / unit)[-1], C.copy()
            found = largest_eigenvalue(C) / unit
            # The margin is LAPACK's own error.
            assert largest * (1.0 - 1e-13) <= found <= 1.0101 * largest
            assert largest_eigenvalue(np.asfortranarray(C)[::-1, ::-1]) / unit >= largest * (1.0 - 1e-13)
            assert np.array_equal(C, before)


def test_the_largest_eigenvalue_of_odd_matrices():
    assert largest_eigenvalue(np.zeros((0, 0))) == largest_eigenvalue(np.zeros((7, 7))) == 0.0
    assert 4 * 5e-324 <= largest_eigenvalue(5e-324 * np.array([[3.0, 1.0], [1.0, 1.0]])) < 1e-300  # 3.41 units
    assert 1e-17 <= largest_eigenvalue(1e-17 * np.array([[0.0, 1.0], [1.0, 0.0]])) < 1.02e-17
    assert 0.0 <= largest_eigenvalue(-np.eye(4)) < 1e-14  # any number that is not negative is a bound
    assert 0.0 <= largest_eigenvalue(np.diag([-1.0, 0.0])) < 1e-14
    for wrong in (math.nan, math.inf, -math.inf):
        assert largest_eigenvalue(np.diag([1.0, wrong])) == math.inf


def test_a_start_that_does_not_see_the_top_is_refused_and_another_one_taken(monkeypatch):
    s = 50
    starts: list[np.ndarray] = []
    v = np.random.default_rng(7).standard_normal(s)
    v /= np.linalg.norm(v)
    C, ritz_value = np.eye(s) + np.outer(v, v), norm_bound._ritz_value

    def blind(A: np.ndarray, start: np.ndarray) -> float:
        starts.append(start)
        return ritz_value(A, start) if len(starts) > 1 else 0.25  # true: 0.5, in the unit of A

    monkeypatch.setattr(norm_bound, "_ritz_value", blind)
    assert 2.0 <= largest_eigenvalue(C) <= 2.021
    assert len(starts) == 2
    assert not np.array_equal(*starts)
    # However little the top is above what was to be proved.
    for above in (1e-3, 1e-6, 1e-12):
        height = (0.01 + above) / (1.0 - 1.01 * np.max(v * v))  # so 1 + height = 1.01 times the largest entry, + above
        C = np.eye(s) + height * np.outer(v, v)
        assert 1.0 + height <= largest_eigenvalue(C) <= 1.0101 * (1.0 + height)
    # Lanczos that does not converge is no failure either.
    monkeypatch.setattr(norm_bound, "_ritz_value", lambda A, start: 0.1)
    Q = orthonormal(s, np.random.default_rng(8))
    C = Q * np.linspace(0.0, 1.0, s) @ Q.T
    assert 1.0 - 1e-13 <= largest_eigenvalue((C + C.T) / 2.0) <= 1.0101


def test_entrywise_powers_are_bounds_for_all_matrices_within_the_slack():
    rng = np.random.default_rng(9)
    for s in (1, 2, 40, 150):
        block = np.zeros((s, s))
        block[: s // 2, : s // 2] = 0.5
        Phi = rng.standard_normal((s, 3)) * (rng.uniform(size=(s, 1)) < 0.7)
        rows = Phi / np.maximum(np.linalg.norm(Phi, axis=1), 1e-30)[:, None]
        flat = orthonormal(s, rng)[:, : s // 2 + 1]
        for C in (np.zeros((s, s)), np.eye(s), np.ones((s, s)), block, rows @ rows.T, flat @ flat.T):
            slack = 0.05 * rng.uniform(size=s) * (rng.uniform(size=s) < 0.8)
            signs = np.sign(rng.standard_normal((s, s)))
            unknown = np.outer(slack, slack)
            for truth, given in ((C, None), (C + unknown, slack), (C + np.triu(signs) * unknown, slack)):
                truth = np.triu(truth) + np.triu(truth, 1).T
                found = entrywise_powers(C, given)
                A = [np.linalg.eigvalsh(M)[-1] for M in (truth, truth**2, np.abs(truth) ** 3)]
                # y lies in [0, 1]: the cap s, and Λ₃ <= Λ₂ <= Λ₁, hold for Σ y^k, not for these matrices beyond s.
                capped = np.minimum(np.minimum.accumulate(np.minimum(A, s)), s) * (1.0 - 1e-13)
                assert np.all(found >= capped)
                assert np.all(np.diff(found) <= 0.0)
                assert found[0] <= min(1.0101 * max(np.linalg.eigvalsh(C)[-1], 0.0) + slack @ slack + 1e-14, s)
            if s >= 40 and np.max(np.linalg.eigvalsh(C)) < s:
                beyond = np.linalg.eigvalsh(C + np.outer(slack, slack))[-1]
                assert entrywise_powers(C, slack)[0] >= beyond  # which without the slack may not be


def test_the_share_grows_with_the_powers_and_falls_with_rows_and_failure():
    q = np.array([0.2, 0.1, 0.05])
    for s, failure in itertools.product((1, 10, 100, 1000, 10_000), FAILURES):
        share = share_bound(q * s, s, failure)
        assert 0.0 < share <= 1.0
        for k in range(3):
            more = q * s
            more[k] *= 1.1
            assert share_bound(more, s, failure) >= share
        assert share_bound(q * s, s, failure / 10.0) >= share
        assert share_bound(q * 2 * s, 2 * s, failure) <= share
        # y in [0, 1] in the same Λ₁: nothing is worse than y in {0, 1}.
        assert share <= share_bound(np.full(3, q[0] * s), s, failure)
        # No rows of error at all.
        least = smallest_share(s, failure)
        assert math.isclose(s * math.log1p(-least), math.log(failure), rel_tol=1e-6)
        assert (
            least <= share_bound(np.zeros(3), s, failure) <= min(1.0, (1.0 + 2.0 / -math.log(failure)) * least / 0.95)
        )
        assert share_bound(np.zeros(3), s, failure) <= share
    assert 0.18 < smallest_share(SMALLEST_SAMPLE) < 0.19
    # As s grows, the share of each bet is the p that makes the mean of its logarithm 0; the best bet wins.
    h = BETS * q[0] + BETS**2 / 2.0 * q[1] + (-np.log1p(-BETS) - BETS - BETS**2 / 2.0) * q[2]
    limit = np.min(-np.expm1(-h) / BETS)
    shares = [share_bound(q * s, s) for s in (10**3, 10**5, 10**8)]
    assert shares[0] > shares[1] > shares[2] > limit * (1.0 - 1e-12) > q[0]
    assert math.isclose(shares[2], limit, rel_tol=2e-5)
    # Of y that are all alike hardly anything is lost.
    assert share_bound(np.array([0.2, 0.04, 0.008]) * 10**8, 10**8) < 1.001 * q[0]


def test_what_a_factor_lacks_is_counted():
    """E = [[0, a], [a, 0]] among other rows has a zero diagonal there, so that no draw shows it."""
    rng, a = np.random.default_rng(0), 0.3
    E = np.diag(np.r_[0.0, 0.0, np.full(500, 1e-3)])
    E[0, 1] = E[1, 0] = a
    d = np.maximum(np.diagonal(E), 0.0)
    drawn = rng.choice(len(d), 200, p=d / d.sum())

    def bound(e):
        total, lacking = float(d.sum()), float(e.sum())
        split = split_of(total, 200, lacking)
        powers = powers_of_draws(E[drawn][:, drawn], np.zeros(200), d[drawn], e[drawn], split)
        return bound_of_draws(powers, 200, total, lacking, split)

    nothing, small = np.zeros(502), np.full(502, 1e-9)
    assert bound(nothing) < a < bound(np.r_[a, a, np.zeros(500)])
    # Rows that lack little beside their number cost no more than they lack.
    assert bound(nothing) < bound(small) < 1.001 * bound(nothing) + 101 * small.sum()
