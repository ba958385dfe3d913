"""Put the imitation of CuPy into every Python process that finds this folder on PYTHONPATH: see ci/on_imitation.sh."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tests import fake_cupy

fake_cupy.install()
