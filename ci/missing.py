"""Name the required packages that this Python lacks, and how to bring them to a machine without a network.

``python ci/missing.py [DISTRIBUTION ...]`` checks what the package needs, and the distributions given by name. It
imports the standard library alone. The exit status is 1 where something is missing.
"""

from __future__ import annotations

import platform
import re
import shlex
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODULES = {"scikit-learn": "sklearn"}


def main() -> None:
    lacking = missing(sys.argv[1:])
    if lacking:
        sys.exit(advice(lacking))


def missing(others: list[str]) -> list[str]:
    """Return the requirements, with their versions, whose modules cannot be found."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = {name_of(line): line for lines in project["optional-dependencies"].values() for line in lines}
    wanted = project["dependencies"] + [optional.get(name, name) for name in others]
    return [line for line in wanted if find_spec(module_of(name_of(line))) is None]


def name_of(requirement: str) -> str:
    """Return the distribution of a requirement: «scikit-learn» of «scikit-learn>=1.8»."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def module_of(distribution: str) -> str:
    """Return the module that a distribution installs."""
    return MODULES.get(distribution, distribution.replace("-", "_"))


def advice(lacking: list[str]) -> str:
    """Return the message: what is missing, and the commands that download and install it."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    processor = platform.machine()
    tags = f"--platform manylinux_2_28_{processor} --platform manylinux2014_{processor}"
    download = f"pip download --only-binary=:all: --python-version {version} {tags} --dest wheels"
    names = shlex.join(name_of(line) for line in lacking)
    return "\n".join(
        [
            f"{sys.executable} (Python {version}) lacks {', '.join(name_of(line) for line in lacking)}.",
            "On a machine with a network:",
            f"  python3 -m {download} {shlex.join(lacking)}",
            "Copy the folder wheels to this machine, and here:",
            f"  {shlex.quote(sys.executable)} -m pip install --no-index --find-links wheels --target lib {names}",
            '  export PYTHONPATH="$PWD/lib"',
        ]
    )


if __name__ == "__main__":
    main()
