"""Check the links of the pages in a folder: ``python ci/check_links.py FOLDER``.

Every local link has its page and anchor, and no link to another site holds the "$" of an inventory.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = {""}
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def broken_links(folder: Path) -> list[str]:
    """Return a line for every link of a page to a missing file or anchor of the folder, and every unfinished one."""
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                broken += [f"{path.relative_to(folder)}: {link}"] if "$" in link else []
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            found = target.exists() and (target not in pages or unquote(parts.fragment) in pages[target].anchors)
            if not found:
                broken.append(f"{path.relative_to(folder)}: {link}")
    return broken


if __name__ == "__main__":
    lines = broken_links(Path(sys.argv[1]).resolve())
    print("\n".join(lines) or "Every local link has its page.")
    sys.exit(bool(lines))
