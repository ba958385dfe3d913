"""Products of float32 that round their operands: TF32 keeps 10 bits, too few for a certificate of 1e-5.

CuPy (`CUPY_TF32`) and NVIDIA's libraries (`NVIDIA_TF32_OVERRIDE`) round where the user asks the whole process to. The
setting is the user's: it is reported and never changed. A test product shows what the card does with it.
"""

from __future__ import annotations

import numpy as np

from gpukpca._process import state
from gpukpca.cuda.device import measured_once

# Rows, columns and terms of the test product: cuBLAS multiplies so large matrices as it multiplies tiles.
SHAPE = (512, 512, 128)


def rounds_products() -> bool:
    """Return whether float32 products on the current device round their operands; False where no memory is left."""
    found: bool | None = measured_once(state.rounds_products, _test_product_is_rounded)
    return bool(found)


def _test_product_is_rounded() -> bool:
    """Multiply matrices whose entries have 14 bits. Reading the answer waits for the device."""
    import cupy

    n, m, k = SHAPE
    entry = np.float32(1.0 + 2.0**-14)
    product = cupy.full((n, k), entry, np.float32) @ cupy.full((k, m), entry, np.float32)
    errors = [abs(float(extreme) / k - float(entry) ** 2) for extreme in (product.max(), product.min())]
    return max(errors) > 2.0**-16
