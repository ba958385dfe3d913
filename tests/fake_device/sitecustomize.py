"""Put the imitation of CuPy into every Python process that finds this folder on PYTHONPATH: see ci/on_imitation.sh.

Its card is small, so that what sizes itself by free memory stays small too.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import fake_cupy

# What the tests and the quick cases need.
CARD_BYTES = 4 * 2**30

fake_cupy.install()
fake_cupy.device_bytes(CARD_BYTES)
