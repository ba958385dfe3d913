"""Pictures that the tests draw, kept where ``GPUKPCA_PICTURES`` names a folder."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

LARGEST_PICTURE = 120_000


def keep(figure: Any, name: str, dpi: int = 120) -> None:
    """Lay a figure out; where a folder is named, write it there in few colors, small enough for a repository."""
    figure.draw_without_rendering()
    if not (folder := os.environ.get("GPUKPCA_PICTURES")):
        return
    from PIL import Image

    raw, small = io.BytesIO(), io.BytesIO()
    figure.savefig(raw, format="png", dpi=dpi)
    # The palette that keeps rare colors, such as those of a legend; median cut loses them.
    how = {"method": Image.Quantize.MAXCOVERAGE, "kmeans": 8, "dither": Image.Dither.NONE}
    Image.open(raw).convert("RGB").quantize(256, **how).save(small, format="png", optimize=True)
    assert small.tell() < LARGEST_PICTURE
    Path(folder).mkdir(exist_ok=True)
    Path(folder, f"{name}.png").write_bytes(small.getvalue())
