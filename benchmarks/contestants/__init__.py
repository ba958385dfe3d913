"""A page for each library that may be absent; `PEERS` holds the contestants of all pages."""

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules

from benchmarks.peer import Peer


def of_all_pages() -> dict[str, Peer]:
    """Return name -> contestant of every page in this folder."""
    found: dict[str, Peer] = {}
    for page in iter_modules(__path__):
        more = import_module(f"{__name__}.{page.name}").PEERS
        check_apart(page.name, more, found)
        found |= more
    return found


def check_apart(page: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise where a page would replace a contestant."""
    if twice := sorted(set(names).intersection(known)):
        raise ValueError(f"benchmarks/contestants/{page}.py: {', '.join(twice)} is the name of another contestant.")


PEERS = of_all_pages()
