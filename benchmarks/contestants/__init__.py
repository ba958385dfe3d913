"""A page for each library that may be absent; `PEERS` holds the contestants of all pages."""

from importlib import import_module
from pkgutil import iter_modules

from benchmarks.peer import Peer


def of_all_pages() -> dict[str, Peer]:
    """Return name -> contestant of every page in this folder."""
    found: dict[str, Peer] = {}
    for page in iter_modules(__path__):
        found |= import_module(f"{__name__}.{page.name}").PEERS
    return found


PEERS = of_all_pages()
