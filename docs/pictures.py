"""Draw the pictures of the documentation: ``python docs/pictures.py``.

The pictures of pages are what the Python blocks of the pages save. The build of the documentation draws them into
`static`, and git ignores them. That of the README is committed, for those who read it without a build; a test compares
it with the gallery.
"""

from __future__ import annotations

import io
import re
import runpy
import shutil
import sys
import warnings
from contextlib import chdir, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent
README = HERE.parent / "benchmarks" / "pictures" / "contours_2.png"


def draw_pages() -> None:
    """Run the Python blocks of each page that shows a picture of `static`, and put the pictures there."""
    for page in sorted(HERE.rglob("*.md")):
        text, names = page.read_text(encoding="utf-8"), dict[str, Any]()
        if pictures := re.findall(r"static/(\w+\.png)\)", text):
            with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(io.StringIO()):
                with warnings.catch_warnings(action="ignore"):  # some pages show what warnings look like
                    for block in re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S):
                        exec(compile(block, page.name, "exec"), names)
                for picture in pictures:
                    shutil.copy(picture, HERE / "static" / picture)


def draw_readme() -> None:
    """Draw the second figure of the contours in the gallery, with 128 colors: a third of the bytes."""
    import matplotlib.pyplot as plt
    from PIL import Image

    plt.switch_backend("agg")
    runpy.run_path(str(HERE / "gallery" / "plot_contours.py"))
    plt.figure(2).savefig(README, dpi=150)
    with Image.open(README) as image:
        small = image.convert("RGB").quantize(128)
    small.save(README, optimize=True)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    draw_pages()
    draw_readme()
