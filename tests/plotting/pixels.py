"""Pixels of figures."""

from __future__ import annotations

import io
from typing import Any

import numpy as np


def png(figure: Any, dpi: int = 40) -> np.ndarray:
    """Draw a figure, small as that is quick, and return its pixels."""
    from matplotlib.image import imread

    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    file.seek(0)
    return imread(file)
