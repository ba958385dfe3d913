"""The layering law, held by the source itself: imports and calls of every file, read with `ast`."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import gpukpca
from tests.each import each

PACKAGE = Path(gpukpca.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# room -> level; gram, covariance and eigen are siblings that never import each other
LEVELS = {
    "_container": 0,
    "_files": 0,
    "_formatting": 0,
    "_extras": 0,
    "_former": 0,
    "_rules": 0,
    "_process": 0,
    "_typing": 0,
    "_version": 0,
    "exceptions": 0,
    "cuda": 1,
    "backend": 2,
    "data": 3,
    "kernels": 4,
    "covariance": 5,
    "eigen": 5,
    "gram": 5,
    "distributed": 6,
    "algorithms": 7,
    "persistence": 8,
    "checkpoint": 9,
    "decomposition": 9,
    "__main__": 10,
    "cli": 10,
    "datasets": 10,
    "model_selection": 10,
    "plotting": 10,
}
ESTIMATORS = LEVELS["decomposition"]
TOP = max(LEVELS.values())
# What a room below the estimators may import of the package, beside itself, _typing and exceptions.
MAY_IMPORT = {
    "cuda": set(),
    "backend": {"cuda"},
    "data": {"backend"},
    "kernels": {"data", "backend"},
    "covariance": {"kernels", "data", "backend"},
    "eigen": {"data", "backend"},
    "gram": {"kernels", "data", "backend"},
    "distributed": {"covariance", "gram", "kernels", "data", "backend"},
    "algorithms": {"distributed", "covariance", "eigen", "gram", "kernels", "data", "backend"},
    "persistence": {"algorithms", "distributed", "covariance", "eigen", "gram", "kernels", "data", "backend"},
    "checkpoint": {"persistence", "eigen", "data", "backend"},
}
# What a folder of `algorithms` may import of the others; every folder may import the modules beside the folders.
ALGORITHMS = {
    "kernel_pca": set(),
    "pca": set(),
    "latent": {"pca"},
    "mixture": {"pca", "latent"},
    "preimage": {"kernel_pca"},
}
# Imports inside a function that close a cycle of modules, each for the reason given.
LATE_IMPORTS = {
    ("kernels/base.py", "kernels.algebra"),  # k1 + k2 makes a node, and a node is a kernel
    ("eigen/dense.py", "eigen.block_krylov"),  # each solver hands over to the other what it cannot do
}
# Where a foreign library may be imported: rooms, or files.
HOMES = {
    "cupy": {"cuda"},
    "cupyx": {"cuda"},
    "sklearn": {"decomposition", "model_selection", "plotting", "cli"},
    "rich": {"cli"},
    "click": {"cli"},
    "polars": {"cli"},
    "matplotlib": {"plotting"},
    "dask": {"distributed"},
    "distributed": {"distributed"},
    "threadpoolctl": {"backend", "cli"},
    "psutil": {"backend"},
    "safetensors": {"_container"},
    "joblib": set(),
    "torch": set(),
    "array_api_strict": set(),
    "pandas": set(),
}
BIGGEST_FILE = 24_000
# Names that are defined twice: the same by another room, for another algorithm, or two terms of two fields.
SHARED_NAMES = {
    "ConvergenceWarning": "decomposition/_base exceptions",
    **dict.fromkeys(["free_bytes", "release_unused", "synchronize"], "backend/device cuda/device"),
    **dict.fromkeys(["column_sums", "inner_products", "times_small"], "backend/linalg data/products"),
    "distances": "backend/linalg cuda/distances",
    "solve_positive_definite": "backend/linalg cuda/linalg",
    "fit_rows": "algorithms/kernel_pca/fit algorithms/pca/fit",
    "plan_of": "algorithms/kernel_pca/planning algorithms/pca/planning",
    **dict.fromkeys(["points_of", "scores_of"], "algorithms/latent/model algorithms/pca/model"),
}


def short(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def room(path: Path) -> str:
    """The first part of the path: a folder, or a module by itself."""
    return short(path).split("/")[0].removesuffix(".py")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """(dotted name, whether inside a function) of everything a file imports."""
    found = []

    def walk(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend((alias.name, inside) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{short(path)}: write «from gpukpca.room.file import name»"
                found.extend((f"{child.module}.{alias.name}", inside) for alias in child.names)
            walk(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    walk(tree(path), False)
    return found


@cache
def module_of(name: str) -> str | None:
    """The module of the package that a dotted name refers to, without «gpukpca.»; None for foreign names."""
    parts = name.split(".")
    if parts[0] != "gpukpca":
        return None
    for length in range(len(parts), 1, -1):
        candidate = PACKAGE.joinpath(*parts[1:length])
        if candidate.with_suffix(".py").exists() or (candidate / "__init__.py").exists():
            return ".".join(parts[1:length])
    return ""


def dotted(node: ast.AST) -> str:
    """«np.random.default_rng» of an attribute chain, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def annotations(path: Path) -> set[ast.AST]:
    """All nodes inside type annotations."""
    nodes: set[ast.AST] = set()
    for node in ast.walk(tree(path)):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(part, ast.AST):
                nodes.update(ast.walk(part))
    return nodes


INNER = [path for path in FILES if path != PACKAGE / "__init__.py"]


def test_every_file_belongs_to_a_room():
    assert not [short(path) for path in INNER if room(path) not in LEVELS]


@each("path", INNER, ids=short)
def test_imports_go_down(path):
    own = room(path)
    for name, _ in imports(path):
        module = module_of(name)
        if module is None:
            continue
        other = module.split(".")[0]
        if other == "":  # «from gpukpca import ...» of the package itself: only those above everything else may
            assert LEVELS[own] == TOP, f"{short(path)} imports {name}: import from the room and file instead"
            continue
        if other == own or (short(path), module) in LATE_IMPORTS:
            continue
        # Rooms of one level may use each other, without cycles of modules: the innermost, and from the estimators on.
        peers = LEVELS[other] == LEVELS[own] and (LEVELS[own] == 0 or LEVELS[own] >= ESTIMATORS)
        assert peers or LEVELS[other] < LEVELS[own], f"{short(path)} imports {name}, which is not below it"
        if own in MAY_IMPORT and LEVELS[other] > 0:
            assert other in MAY_IMPORT[own], f"{short(path)} may not import {name}"


@each("path", [path for path in INNER if room(path) == "algorithms"], ids=short)
def test_algorithms_import_each_other_as_the_drawing_says(path):
    own = folder(short(path).removesuffix(".py").replace("/", "."))
    if short(path) == "algorithms/__init__.py":  # re-exports the functions of all folders
        return
    for name, _ in imports(path):
        other = folder(module_of(name) or "")
        if other and other != own:
            assert own in ALGORITHMS, f"{short(path)} imports {name}: it serves all folders and may import none"
            assert other in ALGORITHMS[own], f"{short(path)} may not import {name}"


# Modules of the package that one file may import from, and the wider files: their numbers may only fall.
MODULES = 20
WIDER = {
    "algorithms/pca/fit.py": 22,
    "decomposition/kernel_pca.py": 26,
}


@each("path", INNER, ids=short)
def test_a_file_imports_from_few_modules(path):
    modules = {module for name, _ in imports(path) if (module := module_of(name))}
    allowed = WIDER.get(short(path), MODULES)
    assert len(modules) <= allowed, f"{short(path)} imports from {len(modules)} modules"
    assert short(path) not in WIDER or len(modules) > MODULES, f"{short(path)} is no longer wide"


# Rooms that know what holds rows, and the questions that all others together may ask.
CONTAINERS = ("backend", "cuda", "data", "kernels", "distributed")
QUESTIONS, PANELS = ("is_sparse", "is_memory_map", "is_dask_array"), {"Rows", "BatchedRows", "ClusterRows"}


def asks_for_container(node: ast.AST) -> bool:
    """Whether a call asks which container holds the rows."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name) and node.func.id == "isinstance":
        return bool(PANELS & {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)})
    return dotted(node.func) in QUESTIONS


def test_containers_are_the_business_of_few_rooms():
    others = [path for path in FILES if room(path) not in CONTAINERS]
    lines = {(path, node.lineno) for path in others for node in ast.walk(tree(path)) if asks_for_container(node)}
    assert len(lines) <= 60, len(lines)


def folder(module: str) -> str:
    """The folder of a module of `algorithms`; nothing for modules beside the folders, and of other rooms."""
    parts = module.split(".")
    return parts[1] if parts[0] == "algorithms" and len(parts) > 1 and parts[1] in ALGORITHMS else ""


@each("path", [path for path in INNER if room(path) == "algorithms"], ids=short)
def test_algorithms_know_no_estimator(path):
    names = {node.id for node in ast.walk(tree(path)) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(tree(path)) if isinstance(node, ast.arg)}
    assert "estimator" not in names


def graph(late: bool) -> dict[str, set[str]]:
    """Module -> modules it imports; with `late`, those inside functions as well (less the ones allowed)."""
    edges: dict[str, set[str]] = {}
    for path in INNER:
        module = short(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        edges[module] = set()
        for name, inside in imports(path):
            target = module_of(name)
            if target and target != module and (late or not inside) and (short(path), target) not in LATE_IMPORTS:
                edges[module] |= {target} | (ancestors(target) - ancestors(module) - {module})
    return edges


def ancestors(module: str) -> set[str]:
    """The packages around a module, whose __init__ Python runs first: whichever module is imported first must do."""
    parts = module.split(".")
    return {".".join(parts[:length]) for length in range(1, len(parts))}


@pytest.mark.parametrize("late", [False, True], ids=["at import", "at any time"])
def test_no_cycle_between_modules(late):
    edges = graph(late)
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"cycle: {' -> '.join([*path[path.index(module) :], module])}"
        if module in done:
            return
        for target in sorted(edges.get(module, ())):
            visit(target, (*path, module))
        done.add(module)

    for module in sorted(edges):
        visit(module, ())


def test_the_late_imports_that_are_allowed_are_still_there():
    for file, target in LATE_IMPORTS:
        assert any(module_of(name) == target and inside for name, inside in imports(PACKAGE / file))


# conftest counts the tests that ran on CuPy by «[cupy» in their names; these are not among them.
NAMED = "library {}".format


@each("library", HOMES)
def test_foreign_libraries_stay_in_their_rooms(library):
    for path in FILES:
        for name, _ in imports(path):
            if name.split(".")[0] == library:
                homes = {room(path), short(path), short(path.parent)}
                assert homes & HOMES[library], f"{short(path)} imports {name}"


@pytest.mark.parametrize("library", ["cupy", "cupyx", "matplotlib", "dask", "distributed", "polars"], ids=NAMED)
def test_optional_libraries_are_imported_when_used(library):
    for path in FILES:
        late = [inside for name, inside in imports(path) if name.split(".")[0] == library]
        assert all(late), f"{short(path)} imports {library} at its top"


COMPILED = {"ElementwiseKernel", "ReductionKernel", "RawKernel", "RawModule", "fuse", "vectorize", "jit"}


def test_kernels_are_listed_where_they_are_made():
    """`ci/compile_kernels.sh` finds them there; names and types are checked where tests launch them."""
    for path in FILES:
        made = {
            node.attr for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute) and is_of_cupy(node.value)
        }
        if made & COMPILED:
            functions = {node.name for node in tree(path).body if isinstance(node, ast.FunctionDef)}
            assignments = [node for node in tree(path).body if isinstance(node, ast.Assign | ast.AnnAssign)]
            assert "_kernel" in functions, short(path)
            assert any(ast.unparse(node).startswith(("KERNELS =", "KERNELS:")) for node in assignments), short(path)


def is_of_cupy(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id.startswith("cupy")


BELOW = [
    path for path in FILES if LEVELS.get(room(path), TOP) < ESTIMATORS and room(path) not in ("backend", "cuda", "data")
]


@each("path", BELOW, ids=short)
def test_below_the_estimators_only_the_shim_asks_whose_array_it_is(path):
    assert not [name for name, _ in imports(path) if name.split(".")[0] == "array_api_compat"]
    calls = [dotted(node.func) for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    assert not [call for call in calls if "array_api_compat" in call or call.split(".")[-1] == "is_cupy_array"]


@each("path", FILES, ids=short)
def test_random_numbers_come_from_the_shim(path):
    if short(path) == "backend/random.py":
        return
    allowed = annotations(path)
    chains = {dotted(node) for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute) and node not in allowed}
    random = {chain for chain in chains if chain.startswith(("np.random.", "numpy.random."))}
    random -= {"np.random.Generator"}
    # Seeded generators of their own, but never the global state.
    if LEVELS.get(room(path), TOP) >= LEVELS["algorithms"]:
        random -= {"np.random.default_rng", "np.random.RandomState"}
    assert not set(random)
    assert not [name for name, _ in imports(path) if name.split(".")[0] == "random" or name.startswith("numpy.random")]


def test_arguments_are_not_checked_with_assert():
    nodes = [(path, node) for path in FILES for node in ast.walk(tree(path)) if isinstance(node, ast.Assert)]
    assert not [f"{short(path)}:{node.lineno}" for path, node in nodes]


def test_no_file_outgrows_its_room():
    assert not [short(path) for path in FILES if path.stat().st_size > BIGGEST_FILE]


def test_nothing_is_left_for_later():
    words = ("TODO", "FIXME", "XXX", "HACK")
    assert not [(short(path), word) for path in FILES for word in words if word in path.read_text(encoding="utf-8")]


def test_an_init_only_re_exports():
    kinds = (ast.ImportFrom, ast.Import, ast.Assign, ast.Expr)
    # The console script needs a function that imports click late; the names of the package are imported late.
    late = ("cli/__init__.py", "__init__.py")
    inits = [path for path in FILES if path.name == "__init__.py" and short(path) not in late]
    assert not [short(path) for path in inits for node in tree(path).body if not isinstance(node, kinds)]


DRAWING = (PACKAGE / "README.md").read_text(encoding="utf-8")


def test_the_drawing_shows_the_rooms_of_every_level():
    shown = {}
    for level, names in re.findall(r"^ L(\d+) +(\w+(?:, \w+)*)", DRAWING, flags=re.M):
        shown |= dict.fromkeys(names.split(", "), int(level))
    assert shown == {room: level for room, level in LEVELS.items() if room != "__main__"}


def test_files_that_the_page_names_exist():
    files = re.findall(r"`([\w/]+\.py)`", DRAWING)
    assert not [file for file in files if not (PACKAGE / file).exists() and not (PACKAGE.parent / file).exists()]


def test_a_public_name_is_defined_once():
    homes: dict[str, set[str]] = {}
    for path in FILES:
        for node in tree(path).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, set()).add(path.relative_to(PACKAGE).with_suffix("").as_posix())
    shared = {name: " ".join(sorted(paths)) for name, paths in homes.items() if len(paths) > 1}
    assert shared == SHARED_NAMES


def test_modules_are_not_called_utils():
    assert not [short(path) for path in FILES if path.stem in ("utils", "misc", "common", "helpers")]
