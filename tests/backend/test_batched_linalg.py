"""Many small matrices at once: inverses, determinants and packed triangles against LAPACK, one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca.backend.batched_linalg import SWEPT_UP_TO, definite_inverses, unpacked_symmetric


@pytest.mark.parametrize("p", [1, 5, SWEPT_UP_TO, SWEPT_UP_TO + 1])
def test_inverses_and_determinants_are_those_of_lapack(xp, rng, p):
    B = rng.standard_normal((9, p, 2 * p))
    A = B @ np.swapaxes(B, 1, 2) + 0.1 * np.eye(p)
    inverses, log_determinants = definite_inverses(xp.array(np.moveaxis(A, 0, 2).copy()), 0.1)
    np.testing.assert_allclose(np.moveaxis(xp.host(inverses), 2, 0), np.linalg.inv(A), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(xp.host(log_determinants), np.linalg.slogdet(A)[1], atol=1e-10)
    entries = np.moveaxis(A, 0, 2)[np.triu_indices(p)]
    np.testing.assert_array_equal(xp.host(unpacked_symmetric(xp.array(entries), p)), np.moveaxis(A, 0, 2))
