"""A page for each library that may be absent; `PEERS` holds the contestants of all pages."""

from importlib.util import module_from_spec
from pkgutil import iter_modules

from benchmarks.peer import Peer


def of_all_pages() -> dict[str, Peer]:
    """Return name -> contestant of every page in this folder."""
    found: dict[str, Peer] = {}
    for finder, name, _ in iter_modules(__path__):
        spec = finder.find_spec(name)
        page = module_from_spec(spec)
        spec.loader.exec_module(page)
        found |= page.PEERS
    return found


PEERS = of_all_pages()
