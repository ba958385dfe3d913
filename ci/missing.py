"""Name the required packages that this Python lacks or has too old, and how to bring them without a network.

``python ci/missing.py [DISTRIBUTION ...]`` checks what the package needs, and the distributions given by name. It
imports the standard library alone. The exit status is 1 where something is missing or too old.
"""

from __future__ import annotations

import platform
import re
import shlex
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = {"scikit-learn": "sklearn"}


def main() -> None:
    faults = {line: fault for line in requirements(sys.argv[1:]) if (fault := fault_of(line))}
    if faults:
        sys.exit(advice(faults))


def requirements(others: list[str]) -> list[str]:
    """Return the lines of pyproject.toml for what the package needs and for these distributions."""
    file = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, groups = file["project"], file["dependency-groups"]
    lists = [*project["optional-dependencies"].values(), *groups.values()]
    optional = {name_of(line): line for lines in lists for line in lines if isinstance(line, str)}
    return [*project["dependencies"], *(optional.get(name, name) for name in others)]


def fault_of(requirement: str) -> str:
    """Return the name of a distribution that is missing, with both versions where it is too old; "" where it serves."""
    name, least = name_of(requirement), lower_bound(requirement)
    if find_spec(module_of(name)) is None:
        return name
    try:
        installed = version(name)
    except PackageNotFoundError:  # a module without metadata, such as a checkout on PYTHONPATH
        return ""
    return f"{name} {least} or newer (it has {installed})" if is_older(installed, least) else ""


def is_older(installed: str, least: str) -> bool:
    """Return whether a version is older than a lower bound; only the numbers of the releases are compared."""
    found, needed = numbers_of(installed), numbers_of(least)
    length = max(len(found), len(needed))
    return found + [0] * (length - len(found)) < needed + [0] * (length - len(needed))


def numbers_of(release: str) -> list[int]:
    """Return [1, 7, 0] for «1.7.0» and «1.7.0+cpu»."""
    return [int(part) for part in re.split(r"[^\d.]", release, maxsplit=1)[0].split(".") if part]


def name_of(requirement: str) -> str:
    """Return the distribution of a requirement: «scikit-learn» of «scikit-learn>=1.7»."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def lower_bound(requirement: str) -> str:
    """Return the version of a requirement: «1.7» of «scikit-learn>=1.7», "" where it names none."""
    match = re.fullmatch(r"[\w.-]+(?:\[[\w,-]+\])?(?:>=([\d.]+))?", requirement)
    if match is None:
        sys.exit(
            f"ci/missing.py compares lower bounds such as «numpy>=2.2»; «{requirement}» of pyproject.toml is none."
        )
    return match[1] or ""


def module_of(distribution: str) -> str:
    """Return the module that a distribution installs."""
    return MODULES.get(distribution, distribution.replace("-", "_"))


def advice(faults: dict[str, str]) -> str:
    """Return the message: what is missing or too old, and the commands that download and install it."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    processor = platform.machine()
    tags = f"--platform manylinux_2_28_{processor} --platform manylinux2014_{processor}"
    download = f"pip download --only-binary=:all: --python-version {python} {tags} --dest wheels"
    names = shlex.join(name_of(line) for line in faults)
    return "\n".join(
        [
            f"{sys.executable} (Python {python}) lacks {', '.join(faults.values())}.",
            "On a machine with a network:",
            f"  python3 -m {download} {shlex.join(faults)}",
            "Copy the folder wheels to this machine, and here:",
            f"  {shlex.quote(sys.executable)} -m pip install --no-index --find-links wheels --target lib {names}",
            '  export PYTHONPATH="$PWD/lib"',
        ]
    )


if __name__ == "__main__":
    main()
