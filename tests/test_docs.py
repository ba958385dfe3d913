"""Every snippet of the README and of the documentation runs, and every local link has a target."""

from __future__ import annotations

import re
import shlex
import signal
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import sklearn.datasets
from click.testing import CliRunner

from gpukpca._extras import EXTRAS, pip_install
from gpukpca.algorithms.kernel_pca import planning, task
from gpukpca.backend import blocking, work
from gpukpca.backend.parameters import parameter_names
from gpukpca.cuda import device
from gpukpca.cuda.device import probe
from gpukpca.decomposition._kernels import NAMED_KERNELS
from gpukpca.eigen import block_krylov, landmark_choice, partial_cholesky, request, residuals, solve
from gpukpca.kernels import euclidean
from tests.each import each

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHERS = [ROOT / f"{name}.md" for name in ("CONTRIBUTING", "CHANGELOG", "SECURITY", "gpukpca/README")]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def examples(page: Path, language: str) -> list[tuple[str, str | None]]:
    """Return the blocks of a language with the output that the page shows, the block of text that follows."""
    parts = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return [
        (block, output if kind == "text" else None)
        for (spoken, block), (kind, output) in pairwise([*parts, ("", "")])
        if spoken == language
    ]


def masked(output: str) -> str:
    """Return output in one line without what depends on the machine: numbers, units of memory, times, paths."""
    text = re.sub(r"(?<!\S)(?:/|[A-Z]:\\)\S+", "PATH", " ".join(output.split()))
    text = re.sub(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?", "#", text)
    text = re.sub(r"parts .*? time ", "parts time ", text)  # whose order follows sizes, and these threads
    text = re.sub(r"(?:less than|about) # (?:s|min|h)\b", "TIME", text)
    text = text.replace(", TIME left", "")  # which a fast machine does not print
    return re.sub(r"\b[KMGT]iB\b", "iB", text)


# A number of a text: 1797, 49 700, 0.493, 6e-09, 14.9 %.
NUMBER = r"\d+(?:[ \u00a0]\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?:[ \u00a0]?%)?"


def is_shown(number: str, shown: list[float]) -> bool:
    """Return whether a number of the prose is a shown one, rounded as the prose rounds it."""
    digits = re.sub(r"[ \u00a0%]", "", number)
    mantissa, _, exponent = digits.partition("e")
    last = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return any(abs(value * (100.0 if "%" in number else 1.0) - float(digits)) <= 0.501 * last for value in shown)


def said(*values: Any, number: str) -> None:
    """Check the number that the comment behind a `print` states; rounding has no digits, but a size."""
    if len(values) == 1 and "e" in number:
        assert 0.1 < abs(values[0]) / float(number) < 10.0, (values, number)
    elif len(values) == 1:
        assert is_shown(number, [abs(float(values[0]))]), (values, number)


def stable(output: str) -> list[float]:
    """Return the numbers with a decimal point that are the same on every machine, to two percent."""
    lines = [line for line in output.splitlines() if not re.match("memory|parts|time|K  |  *others|pass ", line)]
    text = re.sub(r"[\d.]+ (?:s|min|h|[KMGT]iB)\b", "", "\n".join(lines))
    return [float(number) for number in re.findall(r"(?<![\w.])\d+\.\d+(?![\w.])", text)]


def is_whole(request: pytest.FixtureRequest) -> bool:
    """Return whether a test runs on all digits: README, and pages that show a plan for them or no digits."""
    given = getattr(request.node, "callspec", None)
    page = given and given.params.get("page")
    text = page.read_text(encoding="utf-8") if page else ""
    shows_plan = re.search(r"^data +1797 x 64", text, flags=re.M)
    return bool(given) and ("snippet" in given.params or bool(page and ("load_digits" not in text or shows_plan)))


def short(number: float) -> str:
    """Return «5e5» of 500000."""
    return re.sub(r"e([-+])0*", r"e\1", f"{number:.0e}").replace("+", "")


def command_lines(page: Path) -> list[str]:
    return [line for block in blocks(page, "bash") for line in block.splitlines() if line.startswith("gpukpca ")]


# Pictures that the build of the documentation draws by the snippets of the page that shows them.
DRAWN = r"static/(\w+\.png)\)"
WITH_PYTHON = [page for page in PAGES[1:] if blocks(page, "python")]


@pytest.fixture
def fewer_digits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Work in an empty folder on 750 of the 1797 digits, with coarse pictures: a third of the time.

    README and pages that show a plan for all digits have all.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if not is_whole(request):
        digits = sklearn.datasets.load_digits()
        fewer = sklearn.utils.Bunch(**digits | {key: digits[key][:750] for key in ("data", "target", "images")})
        pair = (fewer.data, fewer.target)
        monkeypatch.setattr("sklearn.datasets.load_digits", lambda return_X_y=False: pair if return_X_y else fewer)
    monkeypatch.setitem(matplotlib.rcParams, "savefig.dpi", 60)
    monkeypatch.chdir(tmp_path)
    yield
    signal.signal(signal.SIGTERM, handler)


def with_numbers(snippet: str) -> str:
    """Return a snippet that checks the number in ``print(...)  # 0.493: exact``."""
    return re.sub(
        r"^(print(\(.*)\))  # ([\d.]+(?:e-?\d+)?)(?=[:,\s]|$).*$", r"\1; said\2, number='\3')", snippet, flags=re.M
    )


def test_pages_have_snippets() -> None:
    assert len(WITH_PYTHON) >= 10


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_python_snippets_run_in_order(
    page: Path, fewer_digits: None, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    """A line that ends with ``# True`` must print True; a block of text below a snippet is what it prints."""
    namespace: dict[str, Any] = {"said": said}
    for snippet, output in examples(page, "python"):
        checked = re.sub(r"^print\((.*)\)  # True\b.*$", r"assert \1", snippet, flags=re.M)
        if is_whole(request):
            checked = with_numbers(checked)
        exec(compile(checked, page.name, "exec"), namespace)
        printed = capsys.readouterr().out
        if output is not None and not probe()[0]:  # pages show a machine without a card
            assert masked(printed) == masked(output)
            if is_whole(request):
                np.testing.assert_allclose(stable(printed), stable(output), rtol=0.02)
    for picture in re.findall(DRAWN, page.read_text(encoding="utf-8")):
        assert Path(picture).stat().st_size > 5_000


def test_snippets_that_need_other_libraries_run_where_these_are_installed(fewer_digits: None) -> None:
    """They are marked as ``py``, and follow the first snippet of their page."""
    found = [(page, snippet) for page in WITH_PYTHON for snippet in blocks(page, "py")]
    assert len(found) >= 6
    for page, snippet in found:
        needed = set(re.findall(r"^(?:import|from) (\w+)", snippet, flags=re.M))
        if all(find_spec(name) for name in needed):
            namespace: dict[str, Any] = {}
            for code in (blocks(page, "python")[0], snippet):
                exec(compile(code, page.name, "exec"), namespace)


@pytest.mark.parametrize("snippet", blocks(ROOT / "README.md", "python"), ids=count(1))
def test_each_snippet_of_the_readme_runs_alone_and_prints_the_numbers_beside_it(
    snippet: str, fewer_digits: None
) -> None:
    exec(compile(with_numbers(snippet), "README.md", "exec"), {"said": said})


# Numbers in the prose below a shown output that are of another origin.
NOT_OF_A_BLOCK = {
    "how_sure": {"4.1", "10"},
    "denoise": {"3000", "256", "0.38", "0.07"},
    "linear_pca": {"0.95"},
    "streams": {"1000"},
    "choosing_a_kernel": {"0.0056", "16", "256"},
    "large_n": {"11", "85 %", "49 700"},
}


def unshown(text: str) -> set[str]:
    """Return the numbers of two digits, with a point or a percent sign, between an output and the next heading.

    Those that a block of the page so far shows, in its code or as its output, are left out.
    """
    missing, shown = set(), list[float]()
    _, *parts = re.split(r"^```(\w*)[^\n]*\n(.*?)^```\n?", text, flags=re.M | re.S)
    for kind, block, below in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        shown += map(float, re.findall(r"\d+(?:\.\d*)?(?:e[-+]?\d+)?", block))
        prose = re.split(r"^#", below, flags=re.M)[0] if kind == "text" else ""
        prose = re.sub(r"\$[^$]*\$|`[^`]*`|\]\([^)]*\)", "", prose)
        for number in re.findall(rf"(?<![\w.^_/{{×-]){NUMBER}(?![\w/])", prose):
            is_exact = len(re.sub(r"e.*|\D", "", number).lstrip("0")) >= 2 or "." in number or "%" in number
            if is_exact and not is_shown(number, shown):
                missing.add(number)
    return missing


def test_numbers_in_the_prose_below_an_output_are_those_of_the_page() -> None:
    found = {page.stem: unshown(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {page: numbers for page, numbers in found.items() if numbers} == NOT_OF_A_BLOCK


@pytest.mark.parametrize(
    ("prose", "missing"),
    [
        ("It holds 14.9 % of the 1797 rows.", set()),
        ("It holds 14.8 % of the 1797 rows.", {"14.8 %"}),
        ("It holds 0.15 of the 1 798 rows, 2 at most.", {"1 798"}),
        ("## 14.8 %", set()),
    ],
)
def test_a_number_that_no_block_shows_is_found(prose: str, missing: set[str]) -> None:
    assert unshown(f"```python\nprint(X)\n```\n\n```text\n0.149 1797\n```\n\n{prose}\n") == missing


def test_one_sentence_says_what_has_run_on_a_gpu() -> None:
    """It leaves all pages together, with the first record of a card."""
    pages = ["README.md", "docs/index.md", "docs/tutorials/on_a_gpu.md", "gpukpca/__init__.py"]
    said = [name for name in pages if "Nothing has run on a GPU yet" in (ROOT / name).read_text(encoding="utf-8")]
    records = (ROOT / "benchmarks" / "results").glob("*.json")
    assert said == ([] if any('"gpu-' in path.read_text(encoding="utf-8") for path in records) else pages)


def test_the_entry_of_bibtex_has_the_authors_title_and_year_of_the_citation() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (entry,) = blocks(ROOT / "docs" / "reference" / "citing.md", "bibtex")
    stated = dict(re.findall(r"^  (\w+) += \{(.*)\},$", entry, flags=re.M))
    assert stated["title"] == re.findall(r'^title: "(.*)"$', citation, flags=re.M)[0]
    assert stated["year"] == re.findall(r"^date-released: (\d+)-", citation, flags=re.M)[0]
    authors = citation.partition("\nauthors:\n")[2].partition("\nlicense:")[0]
    names = re.findall(r"(?:name|names): (.*)", authors)
    assert names
    assert [name for name in names if name not in stated["author"]] == []


@each("page", sorted((ROOT / "docs" / "how_to").glob("[!i]*.md")), ids=lambda page: page.stem)
def test_a_guide_names_its_goal_messages_and_neighbors(page: Path) -> None:
    title, goal, *_ = page.read_text(encoding="utf-8").split("\n\n")
    assert title.startswith("# ")
    assert re.match(r"[A-Z][a-z]+,? ", goal)
    assert blocks(page, "python") or command_lines(page)
    assert re.findall(r"^## (.*)", page.read_text(encoding="utf-8"), flags=re.M)[-2:] == [
        "What can go wrong",
        "See also",
    ]


def test_every_line_of_the_lecture_topics_has_a_check() -> None:
    page = ROOT / "docs" / "reference" / "lecture_topics.md"
    _, *sections, without_call = re.split(r"^## .*\n", page.read_text(encoding="utf-8"), flags=re.M)
    assert len(sections) >= 10
    assert "```python" not in without_call
    for section in sections:
        topics = re.findall(r"^\| ([^|]+?) \|", section, flags=re.M)[1:]
        _, *parts = re.split(r"^# (.*)\n", section, flags=re.M)
        assert parts[::2] == topics
        assert all(re.search(r"^assert ", check, flags=re.M) for check in parts[1::2]), parts[::2]


def test_every_column_of_a_table_has_a_name() -> None:
    for page in [*PAGES, *OTHERS, ROOT / "benchmarks" / "README.md"]:
        for head in re.findall(r"^(\|.*\|)\n\|[-:| ]+\|$", page.read_text(encoding="utf-8"), flags=re.M):
            assert all(name.strip() for name in head.strip("|").split("|")), (page.name, head)


def test_the_table_of_kernels_names_the_parameters_that_each_reads() -> None:
    text = (ROOT / "docs" / "reference" / "kernels.rst").read_text(encoding="utf-8")
    rows = re.findall(r'^   \* - ``"(\w+)"``\n     - .*\n     -(.*)$', text, flags=re.M)
    listed = {name: {one for one in reads.strip().split(", ") if one} for name, reads in rows}
    assert listed == {name: set(parameter_names(kernel)) for name, kernel in NAMED_KERNELS.items()}


# Page of docs/explanation -> phrases in it that state constants of the code.
LIMITS = {
    "solvers": [
        f"at most n/{task.MONOMIALS_PAY} or {task.FEW_MONOMIALS} monomials",
        f"n ≤ {solve.DENSE_UP_TO_CPU} (GPU: {solve.DENSE_UP_TO_GPU})",
        f"more than n/{block_krylov.DENSE_SHARE} components (GPU: n/{solve.DENSE_SHARE_GPU} up to",
        f"up to n = {solve.LARGE_GPU // 1000} 000)",
        f"about {block_krylov.PASSES[8]:.0f} passes",
        f"Up to {task.LARGEST_SMALL_PROBLEM} of them",
        f"where p > n/{block_krylov.FEWEST_SHARE},",
        f"With {100 * planning.CHEAP_SHARE:.0f} % or fewer",
        f"blocks then have p + {block_krylov.SPARE_COLUMNS} columns, rounded up to a multiple of "
        f"{blocking.WIDE_COLUMNS}",
        f"from n = {planning.SAMPLE_PAYS_IF_RECOMPUTED} the iteration starts from landmarks",
        f"one row in {planning.SAMPLE_SHARE}, at most {planning.LARGEST_SAMPLE}",
        f"pays from n = {planning.SAMPLE_PAYS // 1000} 000.",
        f"starts with {request.FIRST_GUESS} components",
        f"more than n/{block_krylov.DENSE_SHARE} are forecast",
        f"basis of {block_krylov.MAX_BLOCKS} blocks",
        f"p + {blocking.CPU_EXTRA_COLUMNS} rounded up to a multiple of {blocking.GEMM_COLUMNS} on a CPU",
        f"at least {blocking.GPU_BLOCK_COLUMNS} on a GPU",
        f"Up to n = {blocking.NARROW_BLOCK_UP_TO} on a CPU, where a pass is cheap",
        f"is {landmark_choice.LANDMARKS_A_COMPONENT} landmarks for each component, "
        f"{landmark_choice.FEWEST_LANDMARKS} at least",
        *(f"{short(tol)} in {dtype}" for dtype, tol in residuals.DEFAULT_TOLERANCE.items()),
    ],
    "memory_and_plan": [
        f"more than {device.LARGEST_OF_CUDA_12 // 1000} {device.LARGEST_OF_CUDA_12 % 1000} rows",
        f"at {work.COPIED / 1e9:.0f} GB/s, and half a second",
    ],
    "determinism": [f"two products of {device.PRODUCT_EDGE} × {device.PRODUCT_EDGE}"],
    "how_sure": [
        *(f"{short(share)} in {dtype}" for dtype, share in partial_cholesky.ROUNDING.items()),
        f"at most {residuals.NULL_FACTOR:.0f} eps times the larger of λ₁",
    ],
    "precision": [
        f"| at most {euclidean.KAPPA_FLOAT32:.0f} |",
        f"| up to {short(euclidean.KAPPA_FLOAT64)} |",
        f"γ‖x − y‖² ≤ {euclidean.FLAT} for all pairs",
    ],
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_explanation_states_the_limits_of_the_code(name: str) -> None:
    page = " ".join((ROOT / "docs" / "explanation" / f"{name}.md").read_text(encoding="utf-8").split())
    assert not [phrase for phrase in LIMITS[name] if phrase not in page]


def test_command_lines_run(fewer_digits: None) -> None:
    from gpukpca.cli.app import gpukpca

    rng = np.random.default_rng(0)
    rows = [",".join([f"s{i}", *(f"{v:.3f}" for v in rng.standard_normal(4)), "ab"[i % 2]]) for i in range(30)]
    Path("table.csv").write_text("\n".join(["name,u,v,w,x,kind", *rows]) + "\n", encoding="utf-8")
    lines = [command_lines(page) for page in PAGES]
    assert sum(map(bool, lines)) >= 2
    printed = {}
    for line in dict.fromkeys(chain.from_iterable(lines)):
        extra = ["--force"] if " fit " in line else []
        result = CliRunner().invoke(gpukpca, shlex.split(line)[1:] + extra)
        assert result.exit_code == 0, (line, result.output)
        printed[line] = {masked(one) for one in result.output.splitlines()}
    assert Path("digits.png").stat().st_size > 5_000
    shown = [(block, output) for page in PAGES for block, output in examples(page, "bash") if output is not None]
    assert shown
    for block, output in shown:
        found = set[str]().union(*(printed.get(line, set()) for line in block.splitlines()))
        assert {masked(line) for line in output.splitlines()} - {"…"} <= found


@each("page", [*PAGES, *OTHERS], ids=lambda page: page.stem)
def test_links_and_scripts_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        is_drawn = re.search(DRAWN, f"{link})")
        assert link.startswith("https://") or (page.parent / link).exists() or is_drawn, link
    for script in set(re.findall(r"ci/\w+\.sh", text)):
        assert (ROOT / script).exists(), script


def test_remedies_name_the_packages_of_the_extras() -> None:
    """The library itself is on no package index, so `pip install "gpukpca[extra]"` fails."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {name: tuple(project["optional-dependencies"][name]) for name in EXTRAS} == EXTRAS
    assert pip_install("cuda12") == 'pip install "cupy-cuda12x[ctk]>=14"'
    for file in chain(PAGES, OTHERS, (ROOT / "gpukpca").rglob("*.py"), (ROOT / "docs" / "gallery").glob("*.py")):
        if file.stem != "CHANGELOG":
            assert not re.search(r"install[^\n]*['\" ]gpukpca\[", file.read_text(encoding="utf-8")), file
    extras = set(project["optional-dependencies"])
    for page in [*PAGES, *OTHERS]:
        for names in re.findall(r"install[^\n]*\"\.\[([\w,]+)\]", page.read_text(encoding="utf-8")):
            assert set(names.split(",")) <= extras, page


def test_install_lines_name_groups_that_exist_and_no_group_names_the_library() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    assert "gpukpca" not in str(groups)
    scripts = [*(ROOT / "ci").glob("*.sh"), ROOT / "Dockerfile"]
    named = {name for file in [*PAGES, *OTHERS, *scripts] for name in re.findall(r"--group ([a-z]+)", file.read_text())}
    assert {"dev", "docs", "test"} <= named <= set(groups)


def test_scripts_that_use_the_command_line_install_it() -> None:
    for script in (ROOT / "ci").glob("*.sh"):
        text = script.read_text(encoding="utf-8")
        if re.search(r"^gpukpca ", text, flags=re.M):
            assert re.search(r'"\.\[[\w,]*cli', text), script.name
