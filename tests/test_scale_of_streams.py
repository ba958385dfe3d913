"""Data of any size: what comes in batches, latent variable models and local PCA give the answer of X, scaled."""

from __future__ import annotations

import numpy as np
import pytest

from gpukpca.backend.rows import power_of_two_scale, scale_for_squares


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_scale_is_a_power_of_two_that_normal_numbers_hold(dtype):
    info = np.finfo(dtype)
    for largest in (float(info.smallest_subnormal), float(info.tiny), 1e-30, 0.3, 1.0, 7.0, 1e30, float(info.max)):
        scale = power_of_two_scale(largest, dtype)
        assert np.frexp(scale)[0] == 0.5
        assert info.tiny <= dtype(scale) <= info.max and info.tiny <= dtype(1.0 / scale) <= info.max
        assert 2.0**-60 < largest * scale < 2.0**5 and (abs(np.log2(largest)) > 120 or 0.5 <= largest * scale < 1.0)
        assert scale_for_squares(largest, dtype) in (1.0, scale)
    assert power_of_two_scale(0.0, dtype) == scale_for_squares(0.0, dtype) == 1.0
    assert power_of_two_scale(0.75, dtype) == 1.0 and power_of_two_scale(1e-6, dtype) == 2.0**19
    assert scale_for_squares(1e-5, dtype) == 1.0 != scale_for_squares(float(info.max), dtype)
