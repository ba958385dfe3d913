"""Pixels of figures."""

from __future__ import annotations

import io
from typing import Any

import numpy as np


def png(figure: Any) -> np.ndarray:
    """Draw a figure and return its pixels."""
    from matplotlib.image import imread

    file = io.BytesIO()
    figure.savefig(file, format="png")
    file.seek(0)
    return imread(file)
