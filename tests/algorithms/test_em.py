"""The iteration of EM: moves along its steps, where it stops, and what its progress states."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from gpukpca import BayesianPCA, ProbabilisticPCA
from gpukpca.algorithms.latent.acceleration import Extrapolation, subspace_change
from gpukpca.algorithms.latent.e_step import EStep, Parameters, SufficientStatistics, accumulate
from gpukpca.algorithms.latent.em import EMProblem, EMStep, Move, run_em
from gpukpca.algorithms.latent.initialization import observed_moments
from gpukpca.algorithms.latent.m_step import expand_parameters, m_step, orthogonal_columns
from gpukpca.algorithms.latent.priors import FlatPrior

FLOOR = 1e-12


def with_holes(rng, X, share):
    holes = rng.random(X.shape) < share
    holes[np.arange(len(X)), np.arange(len(X)) % X.shape[1]] = False
    return np.where(holes, np.nan, X)


def noise_and(rank, n, d, rng, length=1.0):
    """Noise of variance 1, and `rank` directions that stand out."""
    return rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d)) * length + rng.standard_normal((n, d))


def problem(xp, X, p, tol, max_iter=1000, seed=0):
    """A random start, far from the end, and the steps that are reported."""
    reported: list[EMStep] = []
    loadings = np.linalg.qr(np.random.default_rng(seed).standard_normal((X.shape[1], p)))[0]
    start = Parameters(em_array(xp, loadings), em_array(xp, np.nanmean(X, axis=0)), 1.0)
    rows = em_array(xp, X)

    def sums_at(parameters: Parameters) -> SufficientStatistics:
        return accumulate([rows], EStep(parameters), 1)

    return EMProblem(sums_at, start, FLOOR, tol, max_iter, reported.append), reported


def iterated(xp, X, p, tol, max_iter=1000):
    """Return the result with moves, and the steps on the way."""
    em, reported = problem(xp, X, p, tol, max_iter)
    return FlatPrior().iterate(em, observed_moments([em_array(xp, X)])), reported


def em_array(xp, X):
    return X if xp is np else xp.array(X)


def covariance(xp, parameters):
    W = parameters.loadings if xp is np else xp.host(parameters.loadings)
    return W @ W.T + parameters.noise * np.eye(len(W))


def leading(parameters, count):
    return np.linalg.svd(parameters.loadings, full_matrices=False)[0][:, :count]


def sine(A, B):
    """Return the sine of the largest angle between the spans of orthonormal columns."""
    return np.linalg.norm(A - B @ (B.T @ A), 2)


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_far_start_goes_up_to_the_closed_form_in_every_library(xp, rng):
    """A spectrum without a gap: noise."""
    X = rng.standard_normal((100, 20)) * np.linspace(1.3, 1.0, 20)
    result, _ = iterated(xp, X, 3, 1e-10)
    assert result.converged
    assert np.all(np.diff(result.trace) >= 0)
    values, vectors = np.linalg.eigh(np.cov(X, rowvar=False, ddof=0))
    noise = np.mean(values[:-3])
    reference = (vectors[:, -3:] * (values[-3:] - noise)) @ vectors[:, -3:].T + noise * np.eye(20)
    np.testing.assert_allclose(covariance(xp, result.parameters), reference, atol=1e-4 * values[-1])


def plain(em):
    """Run EM without moves, to the same end."""

    def value_of(parameters: Parameters, sums: SufficientStatistics) -> float:
        return sums.log_likelihood(parameters.noise)

    def step(parameters: Parameters, sums: SufficientStatistics) -> Parameters:
        return orthogonal_columns(expand_parameters(sums, m_step(sums, parameters, None, em.floor)))

    return run_em(em, em.start, value_of, step, subspace_change)


# Directions that stand out, components, share of missing entries, and how many times fewer steps moves take.
CASES = {
    "more components than the data have": (2, 5, 0.02, 2),
    "as many": (3, 3, 0.3, 1),
    "fewer": (5, 3, 0.2, 1),
    "half of the entries": (2, 4, 0.5, 1),
}


@pytest.mark.parametrize("case", CASES)
def test_moves_take_fewer_steps_to_the_same_maximum(case):
    rank, p, share, fewer = CASES[case]
    rng = np.random.default_rng(1)
    X = with_holes(rng, noise_and(rank, 100, 30, rng), share)
    moved, reported = iterated(np, X, p, 1e-8)
    em, _ = problem(np, X, p, 1e-8, 10_000)
    stepped = plain(em)
    assert moved.converged
    assert stepped.converged
    assert np.all(np.diff(moved.trace) >= 0)
    assert fewer * moved.n_steps <= stepped.n_steps
    # Both ends are as near to the maximum as the tolerance allows.
    observed = np.sum(~np.isnan(X))
    long = plain(replace(em, start=moved.parameters, tol=1e-11, max_iter=1000))
    assert long.trace[-1] - moved.trace[-1] <= 1e-5 * observed
    most = min(p, rank)
    assert sine(leading(moved.parameters, most), leading(long.parameters, most)) < 0.01
    # The end is the first step that changes neither the likelihood nor the subspace by more.
    distances = [step.distance for step in reported if step.distance is not None]
    assert distances[-1] <= 1e-8 < min(distances[:-1])
    assert moved.last == reported[-1]
    assert distances[-1] == max(moved.last.gain, moved.last.turn**2)


def test_components_of_noise_stop_by_the_default_tolerance():
    """Wide data with more components than they have: hundreds of steps of EM alone."""
    rng = np.random.default_rng(0)
    clean = 2.0 * rng.standard_normal((150, 2)) @ rng.standard_normal((2, 300))
    X = with_holes(rng, clean + rng.standard_normal(clean.shape), 0.02)
    holes = np.isnan(X)
    model, finer = (ProbabilisticPCA(5, random_state=0, tol=tol).fit(X) for tol in (None, 1e-7))
    assert model.converged_
    assert model.n_iter_ <= 80
    np.testing.assert_array_equal(
        model.log_likelihoods_, ProbabilisticPCA(5, random_state=0, tol=1e-5).fit(X).log_likelihoods_
    )
    gained = finer.log_likelihoods_[-1] - model.log_likelihoods_[-1]
    assert 0 <= gained < 1e-4 * np.sum(~holes)
    assert sine(model.components_[:2].T, finer.components_[:2].T) < 0.01
    changed = np.sqrt(np.mean((model.impute(X) - finer.impute(X))[holes] ** 2))
    assert changed < 0.2 * np.sqrt(finer.noise_variance_)
    errors = [np.sqrt(np.mean((fit.impute(X) - clean)[holes] ** 2)) for fit in (model, finer)]
    assert errors[0] < 1.02 * errors[1]


def test_directions_that_stand_out_are_as_a_long_iteration_finds_them():
    rng = np.random.default_rng(2)
    for share in (0.02, 0.2, 0.5):
        X = with_holes(rng, noise_and(4, 200, 30, rng), share)
        model, finer = (ProbabilisticPCA(4, random_state=0, tol=tol).fit(X) for tol in (None, 1e-12))
        assert model.n_iter_ <= 20
        assert sine(model.components_.T, finer.components_.T) < 0.01
        changed = np.sqrt(np.mean((model.impute(X) - finer.impute(X))[np.isnan(X)] ** 2))
        assert changed < 0.01 * np.sqrt(finer.noise_variance_)


# -- moves -------------------------------------------------------------------------------------------------------------


def random_parameters(rng, d=7, p=2):
    return orthogonal_columns(Parameters(rng.standard_normal((d, p)), rng.standard_normal(d), 0.5))


def between(start, end, share):
    return Parameters(
        start.loadings + share * (end.loadings - start.loadings),
        start.mean + share * (end.mean - start.mean),
        start.noise ** (1 - share) * end.noise**share,
    )


def rotated(parameters, angle):
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return replace(parameters, loadings=parameters.loadings @ turn)


def test_a_move_ends_where_steps_of_one_rate_would_and_ignores_rotations(rng):
    end = random_parameters(rng)
    # Near enough that rotations to the frame do not change the rate.
    start = replace(end, loadings=end.loadings * [[1.01, 0.99]], mean=end.mean + 0.1, noise=0.6)
    steps = tuple(between(start, end, 1 - 0.9**k) for k in range(3))
    for seen in (steps, tuple(rotated(parameters, k) for k, parameters in enumerate(steps))):
        move = Extrapolation(limit=64.0).along(seen, 1e-9)
        assert not move.is_longest
        np.testing.assert_allclose(covariance(np, move.state), covariance(np, end), atol=1e-6)
        np.testing.assert_allclose(move.state.mean, end.mean, atol=1e-6)
    short = Extrapolation(limit=4.0).along(steps, 1e-9)
    assert short.is_longest
    assert 0.01 < abs(short.state.mean - end.mean).max() < 0.9**2 * 0.1
    assert Extrapolation().along((end, end, end), 1e-9).state.noise == pytest.approx(end.noise)
    assert Extrapolation(limit=64.0).along(steps, 0.55).state.noise == 0.55


def test_the_limit_of_moves_grows_with_success_and_shrinks_with_failure(rng):
    start, end = random_parameters(rng), random_parameters(rng)
    long, short = Move(start, True), Move(end, False)
    assert Extrapolation(4.0).after(long, True).limit == 16.0
    assert Extrapolation(16.0).after(short, True).limit == 16.0
    assert Extrapolation(16.0).after(long, False).limit == 4.0
    assert Extrapolation(4.0).after(short, False).limit == 4.0
    assert Extrapolation(1024.0).after(long, True).limit == 1024.0


@dataclass
class Worse:
    """Move to where the likelihood is less, every time."""

    moves: int = 0

    def along(self, steps, floor):
        return Move(replace(steps[0], noise=2.0 * steps[0].noise), False)

    def after(self, move, is_accepted):
        assert not is_accepted
        return Worse(self.moves + 1)


def test_a_move_that_lowers_the_likelihood_is_undone(rng, monkeypatch):
    X = with_holes(rng, noise_and(2, 60, 8, rng), 0.2)
    monkeypatch.setattr("gpukpca.algorithms.latent.priors.Extrapolation", Worse)
    undone, reported = iterated(np, X, 2, 1e-8)
    alone = plain(problem(np, X, 2, 1e-8)[0])
    assert undone.converged
    kept = [step.value for step in reported if not step.is_move]
    np.testing.assert_array_equal(kept, alone.trace)
    assert all(step.gain == 0 for step in reported if step.is_move)
    assert [step.number for step in reported] == list(range(undone.n_steps + 1))
    np.testing.assert_array_equal(undone.trace[1:-1:2], undone.trace[2::2])


def test_most_steps_count_moves(rng):
    X = with_holes(rng, noise_and(2, 60, 8, rng), 0.2)
    for most in (1, 2, 3, 4):
        result, reported = iterated(np, X, 4, 0.0, most)
        assert result.n_steps == most == reported[-1].number
        assert not result.converged
        assert result.last.number == most - (most + 1) % 2


# -- the change of the subspace ----------------------------------------------------------------------------------------


def test_the_change_of_the_subspace_is_an_angle_less_the_noise(xp):
    axes = np.eye(5)
    tilted = np.stack([axes[0], np.cos(0.3) * axes[1] + np.sin(0.3) * axes[2]], axis=1)
    before = Parameters(xp.array(axes[:, :2] * [1e6, 2.0]), xp.array(np.zeros(5)), 1.0)
    for noise in (0.0, 4.0):
        after = Parameters(xp.array(tilted * [1e6, 1.0]), xp.array(np.zeros(5)), noise)
        assert subspace_change(before, after) == pytest.approx(np.sin(0.3) / np.sqrt(1.0 + noise), rel=1e-9)
    other = Parameters(xp.array(axes[:, 1::-1] * [3.0, 1e-3]), xp.array(np.ones(5)), 1.0)
    assert subspace_change(before, other) < 1e-9
    empty = Parameters(xp.array(axes[:, :2] * [1.0, 0.0]), xp.array(np.zeros(5)), 1.0)
    assert subspace_change(empty, before) == pytest.approx(np.sqrt(0.8))


# -- progress ----------------------------------------------------------------------------------------------------------

NUMBER = r"-?\d[\d.e+-]*"
STEP = re.compile(
    rf"EM step \d+: log-likelihood {NUMBER} an entry"
    rf"(, {NUMBER} more (\(stops at 1e-07\), components turned by {NUMBER} \(stops at 3e-04\)|by extrapolation)"
    r"|, an extrapolation was undone)?(, about \d+ s left)?"
)


@pytest.mark.parametrize("unit", [1.0, 2.0**-400])
def test_progress_speaks_of_steps_and_of_the_likelihood_of_an_entry(unit):
    rng = np.random.default_rng(3)
    X = with_holes(rng, noise_and(1, 100, 20, rng), 0.1) * unit
    events = []
    model = ProbabilisticPCA(3, random_state=0, ddof=0, tol=1e-7, verbose=events.append).fit(X)
    plan, *steps = events
    assert plan.stage == "plan"
    assert re.search(
        r"100 x 20, float64.*\n.*EM for 3 components, entries are missing\n.*\n.* a step, estimated", plan.text
    )
    assert {event.stage for event in steps} == {"step"}
    for event in steps:
        assert STEP.fullmatch(event.text), event.text
        assert event.tolerance == 1e-7
        assert (event.residual is None) is (event.done == 0 or "extrapolation" in event.text)
    observed = np.sum(~np.isnan(X))
    np.testing.assert_allclose([event.log_likelihood for event in steps], model.log_likelihoods_ / observed, rtol=1e-12)
    assert model.log_likelihoods_[-1] == pytest.approx(np.sum(model.score_samples(X)), rel=1e-9)
    assert any(event.seconds_left is not None for event in steps[:-1])
    assert steps[-1].seconds_left == 0


def test_progress_of_bayesian_pca_has_a_prior(capsys):
    rng = np.random.default_rng(3)
    BayesianPCA(3, random_state=0, tol=1e-4, verbose=1).fit(with_holes(rng, noise_and(1, 100, 8, rng), 0.1))
    lines = [line for line in capsys.readouterr().err.splitlines() if " EM step" in line]
    assert len(lines) > 2
    assert all("log-posterior" in line and "components" not in line for line in lines)
