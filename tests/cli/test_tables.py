"""Tables as their owners have them: each is read right, or refused with a remedy that this test executes."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest

from gpukpca.cli.header import is_header
from gpukpca.cli.inputs import read_input
from tests.cli.runs import OUT, fit, loaded, refused
from tests.cli.runs import text as write

# What the error names for it -> what it becomes.
HEADER, NO_HEADER = "--header", "--no-header"
BELOW = [[61, 60, 63], [20, 22, 21], [40, 39, 44]]


def lines(*rows: str) -> str:
    return "\n".join(rows) + "\n"


def spectra(first: str, *before: str, X: list[list[float]] = BELOW) -> str:
    """Return rows of numbers below a first line, with a cell of each row before them."""
    cells = [[*before[i : i + 1], *map(str, row)] for i, row in enumerate(X)]
    return lines(first, *map(",".join, cells))


rng = np.random.default_rng(0)
MANY = np.round(rng.standard_normal((6, 8)), 3).tolist()
INDEX = ("0", "1", "2", "3", "4", "5")
# Name -> content, options, the remedy that an error names (None: it is read at once), the rows.
TABLES: dict[str, tuple[str, str, str | None, list[list[float]]]] = {
    "years, dropped": (spectra("country,2000,2001,2002", *"ABC"), "--drop 0", HEADER, BELOW),
    "years, named": (spectra("country,2000,2001,2002", *"ABC"), "--index-column 0", HEADER, BELOW),
    "years far apart": (spectra("country,1990,2005,2010", *"ABC"), "--index-column 0", HEADER, BELOW),
    "years within the values": (
        spectra("country,2000,2001,2002", *"ABC", X=[[900, 5000, 1], [7000, 800, 9000], [1, 2500, 5]]),
        "--index-column 0",
        HEADER,
        [[900, 5000, 1], [7000, 800, 9000], [1, 2500, 5]],
    ),
    "wavelengths": (spectra("400,405,410,415,420,425,430,435", X=MANY), "", HEADER, MANY),
    "uneven wavelengths": (spectra("400,405.5,411,417.5,421,425,430,435", X=MANY), "", HEADER, MANY),
    "wavenumbers that fall": (spectra("4000,3998,3996,3994,3992,3990,3988,3986", X=MANY), "", HEADER, MANY),
    "wavelengths below an empty corner": (spectra(",400,405,410,415,420,425,430,435", *INDEX, X=MANY), "", None, MANY),
    "wavelengths with labels": (
        spectra("kind,400,405,410,415,420,425,430,435", *"aabbab", X=MANY),
        "--label-column kind",
        None,
        MANY,
    ),
    "wavelengths with labels by number": (
        spectra("kind,400,405,410,415,420,425,430,435", *"aabbab", X=MANY),
        "--label-column 0",
        None,
        MANY,
    ),
    "a property before wavelengths": (
        spectra("Brix,400,405,410,415,420,425,430,435", *"123456", X=MANY),
        "--label-column 0",
        None,
        MANY,
    ),
    "time points": (spectra("0,0.5,1,1.5,2,2.5,3,3.5", X=MANY), "", HEADER, MANY),
    "few time points": (spectra("who,0.5,1,2.5", *"ABC"), "--index-column 0", HEADER, BELOW),
    "numbered samples": (spectra("1,2,3,4,5,6,7,8", X=MANY), "", HEADER, MANY),
    "numbered samples with names of genes": (
        spectra("gene,1,2,3,4,5,6,7,8", *"uvwxyz", X=MANY),
        "--drop 0",
        HEADER,
        MANY,
    ),
    "pandas without its index": (spectra("0,1,2", X=BELOW), "", HEADER, BELOW),
    "pandas with its index": (spectra(",0,1,2", *"012", X=BELOW), "", None, BELOW),
    "pandas with an index of names": (spectra(",0,1,2", *"ABC"), "--index-column 0", "--index-column '#0'", BELOW),
    "a name": (
        spectra("who,2,1,0", *"ABC"),
        "--header --drop who --label-column 2",
        "--label-column '=2'",
        [row[1:] for row in BELOW],
    ),
    "a number": (
        spectra("who,2,1,0", *"ABC"),
        "--header --drop who --label-column 2",
        "--label-column '#2'",
        [row[::2] for row in BELOW],
    ),
    "two wavelengths": (
        spectra("400,405,410,415,420,425,430,435", X=MANY),
        "--columns 400,435",
        None,
        [row[::7] for row in MANY],
    ),
    "names from 1 on": (
        spectra("1,2,3,4,5,6,7,8", X=MANY),
        "--header --columns 2",
        "--columns '=2'",
        [row[1:2] for row in MANY],
    ),
    "numbers from 0 on": (
        spectra("1,2,3,4,5,6,7,8", X=MANY),
        "--header --columns 2",
        "--columns '#2'",
        [row[2:3] for row in MANY],
    ),
    "a range of names": (
        spectra("400,405,410,415,420,425,430,435", X=MANY),
        "--columns 405-420,435",
        None,
        [[*row[1:5], row[7]] for row in MANY],
    ),
    "a range of numbers": (spectra("61,60,63", X=BELOW[1:]), "--drop 0-1", None, [row[2:] for row in BELOW]),
    "a range that may be two": (
        spectra("1,2,3,4,5,6,7,8", X=MANY),
        "--header --drop 2-5",
        "--drop '=2-=5'",
        [[row[0], *row[5:]] for row in MANY],
    ),
    "names with a dash": (spectra("a-b,1-2,b-1", X=BELOW), "--columns a-b,1-2", None, [row[:2] for row in BELOW]),
    "one name twice": (spectra("a,a,b", X=BELOW), "--drop a", "--drop '#0'", [row[1:] for row in BELOW]),
    "questions": (
        spectra("11,12,13", X=[[1, 3, 2], [5, 5, 4], [2, 2, 1]]),
        "",
        HEADER,
        [[1, 3, 2], [5, 5, 4], [2, 2, 1]],
    ),
    "identifiers of genes": (spectra("7157,672,675", X=BELOW), "", HEADER, BELOW),
    "one feature": (spectra("height", X=[[1.5], [2.5], [4]]), "", None, [[1.5], [2.5], [4]]),
    "one feature named by a year": (
        spectra("who,2000", *"ABC", X=[[60], [20], [40]]),
        "--index-column 0",
        HEADER,
        [[60], [20], [40]],
    ),
    "one row": ("a,b,c\n1,2,4\n", "", None, [[1, 2, 4]]),
    "weekdays": (spectra("Mon,Tue,Wed", X=BELOW), "", None, BELOW),
    "dates": (spectra("station,2020-01-01,2020-01-02,2020-01-03", *"ABC"), "--index-column 0", None, BELOW),
    "names in quotation marks": (spectra('"a","b, c","d"', X=BELOW), "", None, BELOW),
    "quoted years": (spectra('"who","2000","2001","2002"', *"ABC"), "--index-column 0", HEADER, BELOW),
    "a mark of byte order": ("\ufeff" + spectra("who,a,b,c", *"ABC"), "--index-column who", None, BELOW),
    # Without a header.
    "rows alone": (spectra("61,60,63", X=BELOW[1:]), "", None, BELOW),
    "rows alone, many columns": (spectra(",".join(map(str, MANY[0])), X=MANY[1:]), "", None, MANY),
    "rows that count alike": (lines("1,2,3", "4,5,6", "7,8,9"), "", None, [[1, 2, 3], [4, 5, 6], [7, 8, 9]]),
    "labels that come again": (
        lines("a,1,2,3", "b,9,7,8", "a,4,6,5"),
        "--label-column 0",
        None,
        [[1, 2, 3], [9, 7, 8], [4, 6, 5]],
    ),
    "rows that rise": (
        lines("1,2,3,4,5.5", "2,3,4,5,7", "1,1,2,2,3"),
        "",
        None,
        [[1, 2, 3, 4, 5.5], [2, 3, 4, 5, 7], [1, 1, 2, 2, 3]],
    ),
    "a first row that counts": (lines("0,1,2", "5,2,1", "2,2,9"), "", NO_HEADER, [[0, 1, 2], [5, 2, 1], [2, 2, 9]]),
}


def as_options(line: str) -> dict[str, Any]:
    """Return the options of a command line as those of the reader."""
    words, options = shlex.split(line), {}
    while words:
        name = words.pop(0).removeprefix("--").replace("-", "_")
        flags = {"header": ("header", True), "no_header": ("header", False)}
        name = {"missing": "codes"}.get(name, name)
        key, value = flags[name] if name in flags else (name, words.pop(0))
        options[key] = int(value) if key == "skip" else value
    return options


def test_each_table_is_read_right_or_refused_with_a_remedy_that_works():
    for name, (content, options, remedy, X) in TABLES.items():
        write("x.csv", content)
        if remedy is not None:
            with pytest.raises(ValueError, match=r"x\.csv") as caught:
                read_input("x.csv", **as_options(options))
            words = re.findall("'[#=][^'-]*", remedy) or [remedy]
            assert all(word in str(caught.value) for word in words), (name, str(caught.value))
        read = read_input("x.csv", **as_options(f"{options} {remedy or ''}"))
        np.testing.assert_array_equal(read.X, X, err_msg=name)


def data_of_kinds() -> dict[str, np.ndarray]:
    """Return rows as people have them: of measurements, ratings, counts, pixels, series and columns of other scales."""
    rng = np.random.default_rng(1)
    return {
        "measurements": rng.standard_normal((400, 8)).round(3),
        "few decimals": rng.normal(10.0, 3.0, (400, 3)).round(1),
        "ratings": rng.integers(1, 6, (400, 10)),
        "counts": rng.poisson(30.0, (400, 6)),
        "genotypes": rng.integers(0, 3, (400, 50)),
        "pixels": rng.integers(0, 256, (400, 64)),
        "series": np.cumsum(rng.standard_normal((400, 6)), axis=0).round(2),
        "scales": (rng.standard_normal((400, 5)) * 0.3 + [9.0, 7.0, 5.0, 3.0, 1.0]).round(2),
        "growth": np.cumsum(rng.gamma(2.0, 5.0, (400, 7)), axis=1).round(1),
    }


def header_of(first: list[Any], rows: np.ndarray) -> bool | None:
    cells = [[f"{value:g}" for value in row] for row in rows]
    return is_header([f"{value:g}" for value in first], cells, range(len(first)), ".")


def test_a_header_of_numbers_is_never_read_as_data_and_data_is_seldom_asked_about():
    names = {
        "years": lambda d: range(2000, 2000 + d),
        "falling years": lambda d: range(2020, 2020 - d, -1),
        "wavelengths": lambda d: 400 + 5 * np.arange(d),
        "falling wavenumbers": lambda d: 3999.5 - 1.93 * np.arange(d),
        "numbers": lambda d: range(1, d + 1),
        "numbers of pandas": range,
        "hours": lambda d: 0.5 * np.arange(d),
        "doses": lambda d: 2.0 ** np.arange(d),
    }
    rng = np.random.default_rng(2)
    for kind, X in data_of_kinds().items():
        for m in (5, 30, 150):
            asked = []
            for _ in range(60):
                start = rng.integers(0, len(X) - m)
                rows = X[start : start + m] if kind == "series" else X[rng.choice(len(X), m, replace=False)]
                asked.append(header_of(rows[0], rows[1:]) is not False)
            assert np.mean(asked) <= 0.05, (kind, m)
            for name, of in names.items():
                assert header_of(of(X.shape[1]), rows) is not False, (kind, m, name)


def folder() -> Path:
    path = Path(os.environ.get("GPUKPCA_DATA", Path(__file__).parents[3] / "shared" / "data")) / "tables"
    if not path.is_dir():
        pytest.skip("the folder of GPUKPCA_DATA has no tables")
    return path


# Name -> options, the remedy, rows and columns, the first shares of the variance.
REAL: dict[str, tuple[str, str | None, tuple[int, int], tuple[float, ...]]] = {
    "coffee.csv": ("--label-column 0", None, (70, 601), (0.98202, 0.01635)),
    "nirplums.csv": ("--label-column Brix --drop Firmness", None, (40, 600), (0.94907, 0.04564)),
    "peach.csv": ("--label-column Brix", None, (50, 600), (0.91932, 0.06205)),
    "years.csv": ("--index-column 0", HEADER, (12, 12), (0.99147, 0.00647)),
    "pandas_nm.csv": ("", None, (20, 20), (0.81128, 0.17796)),
    "Iris.csv": ("--index-column Id --label-column Species", None, (150, 4), (0.92462, 0.05302)),
    "missing_lfmm.txt": ("--missing 9 --rows imputed", None, (100, 2000), ()),
    "penguins.csv": ("--drop species,island,sex", "--rows complete", (342, 4), ()),
    "uci.csv": ("--label-column 0", None, (150, 4), (0.92462, 0.05302)),
}


def test_real_tables_give_the_published_shares():
    for name, (options, remedy, shape, shares) in REAL.items():
        path = str(folder() / name)
        if remedy is not None:
            with pytest.raises(ValueError, match=re.escape(name)) as caught:
                read_input(path, **as_options(options))
            assert remedy in str(caught.value), name
        X = read_input(path, **as_options(f"{options} {remedy or ''}")).X
        assert X.shape == shape, name
        values = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
        np.testing.assert_allclose((values / values.sum())[: len(shares)], shares, atol=6e-6, err_msg=name)


def test_a_column_that_counts_the_rows_is_named():
    rows = [f"{7 + i},{i * i % 5},{(3 * i) % 7},{'ab'[i % 2]}" for i in range(12)]
    write("x.csv", lines("Id,x,y,kind", *rows))
    warned = fit("x.csv", "--label-column", "kind", "-n", 1, *OUT).stderr
    assert "column Id counts the rows, as an identifier does, and is used as a feature: --index-column Id" in warned
    for remedy in ("--index-column", "--drop"):
        result = fit("x.csv", "--label-column", "kind", remedy, "Id", "-n", 1, "-k", "linear", *OUT, "--force")
        assert result.stderr == ""
        assert loaded()["feature_names"].tolist() == ["x", "y"]
    assert "x.csv, header: line 1; rows: 12; features: 2 (x … y); labels: kind\n" in result.stdout
    few, alone, others = (
        lines("Id,x", "1,2", "2,5", "3,1"),
        lines("Id", *"123456"),
        lines("a,x", *(f"{2 * i},3" for i in range(9))),
    )
    for one in (few, alone, others):
        assert "counts" not in fit(write("y.csv", one), "-n", 1, "-k", "linear", *OUT, "--force").stderr


EUROPE = "Ort;Länge;Höhe;Einwohner\nMünchen;11,57;519;1.484.226\nKöln;6,96;37;1.073.096\nUlm;9,99;478;126.949\n"
CITIES = [[11.57, 519, 1484226], [6.96, 37, 1073096], [9.99, 478, 126949]]
MONEY = lines(
    "Region,Sales,Ratio,Profit", '"a, b","1,000",0%,$(0.50)', 'b,"1,137",1%,$1.50', 'c,"2,001,137",7%,"$1,001.50"'
)
# Name -> suffix, content, options, what the error tells to do in turn, the rows. A line of Python writes the file that
# is read next.
SPELLED: dict[str, tuple[str, str | bytes, str, tuple[str, ...], list[list[float]]]] = {
    "TRUE and FALSE": (
        ".csv",
        lines("who,a,b", "x,TRUE,1", "y,FALSE,2", "z,true,4"),
        "--drop who",
        (),
        [[1, 1], [0, 2], [1, 4]],
    ),
    "an error of Excel": (
        ".csv",
        lines("a,b", "1,#DIV/0!", "3,4", "5,7"),
        "",
        ("--missing '#DIV/0!' --rows complete",),
        [[3, 4], [5, 7]],
    ),
    "text with tabs": (".txt", lines("a b\tb\tc", "1\t7\t2", "3\t5\t3"), "", (), [[1, 7, 2], [3, 5, 3]]),
    "a title in a table": (
        ".csv",
        lines("Measured in May,,", "a,b,c", "1,2,3", "4,5,7"),
        "",
        ("--skip 1",),
        [[1, 2, 3], [4, 5, 7]],
    ),
    "a delimiter at the ends": (".csv", lines("a,b,", "1,2,", "3,5,"), "", ("--drop '#2'",), [[1, 2], [3, 5]]),
    "an index of two levels": (
        ".csv",
        lines(",,a,b", "A,1,5,2", "A,2,3,3", "B,1,9,4"),
        "",
        ("--drop '#1'",),
        [[5, 2], [3, 3], [9, 4]],
    ),
    "a missing cell in the corner": (
        ".csv",
        lines(",2,3", "2,3,4", "4,9,1", "5,5,5"),
        "",
        ("--header",),
        [[3, 4], [9, 1], [5, 5]],
    ),
    "TRUE and FALSE alone": (".csv", lines("TRUE,FALSE", "FALSE,FALSE"), "", (), [[1, 0], [0, 0]]),
    "names TRUE and FALSE": (".csv", lines("TRUE,FALSE", "3,4", "5,7"), "", (), [[3, 4], [5, 7]]),
    "write.table of R": (".txt", lines('"a" "b"', '"x y" 1 2', '"z" 3 4'), "", (), [[1, 2], [3, 4]]),
    "write.table of R, rows by number": (".txt", lines('"a" "b"', '"1" 1 2', '"2" 3 5'), "", (), [[1, 2], [3, 5]]),
    "two title lines": (
        ".csv",
        lines("Made by a program", "in May", "a,b", "1,2", "3,4"),
        "",
        ("--skip 2",),
        [[1, 2], [3, 4]],
    ),
    "a mark of Excel": (
        ".csv",
        lines("sep=;", "a;b", "1;2", "3;5"),
        "",
        ("--delimiter ';'", "--skip 1"),
        [[1, 2], [3, 5]],
    ),
    "semicolons": (".csv", lines("a;b", "1;2", "3;5"), "", ("--delimiter ';'",), [[1, 2], [3, 5]]),
    "semicolons and commas": (
        ".csv",
        lines("a;b", "1,5;2", "3;5"),
        "",
        ("--delimiter ';' --decimal ,",),
        [[1.5, 2], [3, 5]],
    ),
    "tabs": (".csv", lines("a\tb", "1\t2", "3\t5"), "", ("--delimiter tab",), [[1, 2], [3, 5]]),
    "commas in a text": (".txt", lines("a,b", "1,2", "3,5"), "", ("--delimiter ','",), [[1, 2], [3, 5]]),
    "units": (".csv", lines("a,b", "cm,kg", "1,2", "3,5"), "", ("pandas",), [[1, 2], [3, 5]]),
    "money": (".csv", MONEY, "--drop Region", ("pandas",), [[1000, 0, -0.5], [1137, 1, 1.5], [2001137, 7, 1001.5]]),
    "Europe": (".csv", EUROPE, "--drop 0", ("--delimiter ';' --decimal ,", "pandas"), CITIES),
    "a decimal comma": (
        ".csv",
        lines("a;b", "1,234;5", "1,5;7"),
        "--delimiter ';'",
        ("--decimal ,",),
        [[1.234, 5], [1.5, 7]],
    ),
    "UTF-16": (
        ".csv",
        EUROPE.encode("utf-16"),
        "--drop 0",
        ("pathlib", "--delimiter ';' --decimal ,", "pandas"),
        CITIES,
    ),
    "categories": (
        ".csv",
        lines("Class,V1,V2,V3", "1,y,n,y", "2,n,n,", "1,y,y,n"),
        "--drop Class",
        ("pandas",),
        [[0, 1, 0, 1, 0, 0, 0, 1, 0], [1, 0, 0, 1, 0, 0, 0, 0, 1], [0, 1, 0, 0, 1, 0, 1, 0, 0]],
    ),
    "Windows": (
        ".csv",
        EUROPE.encode("cp1252"),
        "--drop 0",
        ("pathlib", "--delimiter ';' --decimal ,", "pandas"),
        CITIES,
    ),
}


def test_each_remedy_is_executed_until_the_table_is_read():
    for name, (suffix, content, options, remedies, X) in SPELLED.items():
        path, added = write(f"t{suffix}", content), ""
        for remedy in remedies:
            with pytest.raises(ValueError, match=re.escape(path)) as caught:
                read_input(path, **as_options(f"{options} {added}"))
            message = str(caught.value)
            assert remedy in message, (name, message)
            if remedy.startswith("--"):
                added = f"{added} {remedy}"
                continue
            line = re.search(rf"{remedy}\..*?(?= converts| removes| leaves out a line| codes)", message)[0]
            exec(line, {"pandas": pandas, "pathlib": pathlib})
            path, added = (f"x{suffix}", "") if remedy == "pathlib" else ("x.csv", "")
        read = read_input(path, **as_options(f"{options} {added}"))
        np.testing.assert_allclose(read.X, X, rtol=1e-14, err_msg=name)


def test_missing_cells_are_left_out_imputed_or_read_by_code():
    content = lines("who,a,b", "x,1,2", "y,,4", "z,5,-200", "u,7,..", "v,9,6")
    write("x.csv", content)
    with pytest.raises(ValueError, match=r"'' is a missing value.*--rows complete .*--rows imputed"):
        read_input("x.csv", index_column="who", codes="..,-200")
    read = read_input("x.csv", index_column="who", label_column="a", columns="b", codes="..,-200", rows="complete")
    np.testing.assert_array_equal(read.X, [[2], [4], [6]])
    assert read.sample_names == ("x", "y", "v")
    read = read_input("x.csv", index_column="who", codes="..,-200", rows="imputed")
    np.testing.assert_array_equal(read.X, [[1, 2], [5.5, 4], [5, 4], [7, 4], [9, 6]])
    assert read_input(
        write("y.csv", "8,9\n1,2\n9,3\n2,3\n"), header=True, codes="9", rows="complete"
    ).feature_names == ("8", "9")
    read = read_input("x.csv", index_column="who", codes="..,-200", missing=True)
    np.testing.assert_array_equal(read.X, [[1, 2], [np.nan, 4], [5, np.nan], [7, np.nan], [9, 6]])
    np.save("x.npy", np.array([[1, 9], [9, 4], [3, 8], [5, 5]], dtype=np.uint8))
    np.testing.assert_array_equal(
        read_input("x.npy", codes="9", rows="imputed").X, [[1, 17 / 3], [3, 4], [3, 8], [5, 5]]
    )
    assert read_input("x.npy", codes="9", rows="complete").source.endswith("; incomplete rows left out: 2")
    with pytest.raises(ValueError, match="every row has missing cells"):
        read_input("x.npy", codes="9,3,5", rows="complete")
    assert "NaN" in refused("fit", "x.npy", "--missing", "9", *OUT)
    fit("x.npy", "--missing", "9", "--method", "pca", "--rows", "complete", "-n", 1, *OUT)


def test_missing_cells_of_weighted_transposed_and_labeled_tables():
    write("w.csv", lines("a,b,w", "1,2,1", ",4,1", "5,3,8", "7,1,1"))
    read = read_input("w.csv", weight_column="w", rows="imputed")
    np.testing.assert_allclose(read.X[1], [(1 + 8 * 5 + 7) / 10, 4])
    write("t.csv", lines("a,1,NA,3", "b,2,3,5", "c,4,4,1"))
    read = read_input("t.csv", index_column="0", transpose=True, rows="imputed", header=False)
    np.testing.assert_array_equal(read.X, [[1, 2, 4], [2, 3, 4], [3, 5, 1]])
    assert read_input("t.csv", index_column="0", transpose=True, rows="complete", header=False).X.shape == (2, 3)
    write("l.csv", lines("who,a,kind", "-1,2,-1", "x,-1,0", "y,5,1", "z,4,-1"))
    for path in ("l.csv", "l.parquet"):
        options = {"index_column": "who", "label_column": "kind", "codes": "-1,true", "rows": "complete"}
        read = read_input(path, **options)
        np.testing.assert_array_equal(read.X, [[2], [5], [4]])
        assert (read.labels.tolist(), read.sample_names) == ([-1, 1, -1], ("-1", "y", "z"))
        polars.read_csv("l.csv").write_parquet("l.parquet")
    assert read_input(write("o.csv", lines("a,b", "1,2", "3,1")), codes="true", missing=True).count_missing() == 0
    X = np.full((3, 2), 1000.0, dtype=np.float32)
    np.save("x.npy", X)
    assert read_input("x.npy", codes="1e300", missing=True).count_missing() == 0
    # The sum of so many numbers exceeds the precision of float32.
    X = np.tile(np.float32([[1000.1, 3.0]]), (200_000, 1))
    X[7, 0] = np.nan
    np.save("x.npy", X)
    np.testing.assert_allclose(read_input("x.npy", rows="imputed").X[7, 0], 1000.1, rtol=1e-6)


def test_signs_of_one_are_scaled_as_by_pca():
    write("x.csv", lines("a,b", "-1,0", "1,1", "-1,5", "1,2"))
    spectra = []
    for method in ("kernel", "pca"):
        fit(
            "x.csv",
            "-m",
            method,
            *(["-k", "linear"] if method == "kernel" else []),
            "--scale",
            "-n",
            2,
            *OUT,
            "--force",
        )
        spectra.append(loaded()["explained_variance"])
    np.testing.assert_allclose(*spectra, rtol=1e-12)
    write("w.csv", lines("a,b,w", "1,2,1", "1,4,1", "1,3,1", "7,1,0"))
    fit("w.csv", "--scale", "--weight-column", "w", "-k", "linear", "-n", 1, *OUT, "--force")


def test_a_column_that_counts_rows_without_a_header_is_named():
    write("x.csv", lines(*(f"{i},{i * i % 7}.5,{i % 3}" for i in range(1, 20))))
    assert "column 0 counts the rows" in fit("x.csv", "-n", 1, *OUT).stderr
    write("y.csv", lines("Unnamed: 0,b", *(f"{i},{i * i % 7}.5" for i in range(20))))
    assert "--index-column 'Unnamed: 0' makes names of it" in fit("y.csv", "-n", 1, *OUT, "--force").stderr


def test_what_is_no_text_is_one_line():
    Path("x.txt").write_bytes("# h\xe9 x\n1 2\n3 5\n4 4\n".encode("latin-1"))
    assert "is not UTF-8 text" in refused("fit", "x.txt", *OUT)
    polars.DataFrame({"a": [1.0, 2.0], "b": [3.0, 1.0], "c": [b"\xff", b"\xfe"]}).write_parquet("x.parquet")
    assert "names, labels and weights are columns of text or numbers" in refused(
        "fit", "x.parquet", "--label-column", "c", *OUT
    )


def test_remedies_for_real_tables_are_executed():
    """Until the table is read, or no remedy but to leave columns out is named."""
    for name, options, remedies, rows in (
        ("tableau.csv", "--drop Region", ("pandas",), 3),
        ("tableau_sales.csv", "--drop Region", ("pandas",), 2),
        ("excel_bom.csv", "--drop 0", ("--delimiter ';' --decimal ,", "pandas"), 3),
        ("excel_1252.csv", "--drop 0", ("pathlib", "--delimiter ';' --decimal ,", "pandas"), 3),
        ("excel_unicode.txt", "--drop 0", ("pathlib", "--decimal ,", "pandas"), 3),
        ("HouseVotes84.csv", "--drop Class", ("pandas",), 48),
        ("winequality-red.csv", "--drop quality", ("--delimiter ';'",), 11),
    ):
        path, added = str(folder() / name), ""
        for remedy in remedies:
            with pytest.raises(ValueError, match=re.escape(Path(path).name)) as caught:
                read_input(path, **as_options(f"{options} {added}"))
            message = str(caught.value)
            assert remedy in message, (name, message)
            if remedy.startswith("--"):
                added = remedy
                continue
            exec(
                re.search(rf"{remedy}\..*?(?= converts| removes| codes)", message)[0],
                {"pandas": pandas, "pathlib": pathlib},
            )
            path, added = ("x.csv", "") if remedy == "pandas" else (f"x{Path(name).suffix}", "")
        assert read_input(path, **as_options(f"{options} {added}")).X.shape[1] == rows, name


# Options that a message names with a value, or both of a question.
NAMED = (
    r"--(?:header|no-header|(?:drop|index-column|label-column|skip|delimiter|decimal|missing|rows) (?:'[^']*'|[^\s;]+))"
)
FAULTY = {
    "an error of Excel": ("x.csv", lines("a,b", "1,#DIV/0!", "3,4", "5,7")),
    "a code of Eurostat": ("x.csv", lines("a,b", "1,2", ":,4", "5,7")),
    "text among numbers": ("x.csv", lines("a,b c,2000", "1,u,3", "2,v,5")),
    "text in columns of numbers": ("x.csv", lines("2,1,0", "1,u,3", "2,v,5")),
    "text in all columns": ("x.csv", lines("a,b", "u,v", "w,x")),
    "a name with a sign": ("x.csv", lines('a,"b;$HOME"', "1,u", "2,v")),
    "a missing cell": ("x.csv", lines("a,b b", "1,", "2,3")),
    "a missing cell by number": ("x.csv", lines("7,1", "1,", "2.5,3", "8.5,1", "9.5,1")),
    "a missing cell in a parquet file": ("x.parquet", ""),
    "ragged": ("x.csv", lines("a,b", "1,2", "3,4,5")),
    "R, numbers of rows out of order": ("x.txt", lines('"1" "2"', '"4" 1 2', '"2" 3 5')),
}


def error_of(path: str, options: str) -> str:
    """Return the message of reading a file, or none."""
    try:
        read_input(path, **as_options(options))
    except ValueError as error:
        return str(error)
    return ""


def test_no_remedy_is_followed_by_the_same_error():
    polars.DataFrame({"a": [1.0, None], "b b": [2.0, 3.0]}).write_parquet("x.parquet")
    faulty = {name: (f"x{suffix}", content) for name, (suffix, content, *_) in SPELLED.items()}
    faulty |= FAULTY | {name: ("x.csv", content) for name, (content, *_) in TABLES.items()}
    tried = 0
    for name, (path, content) in faulty.items():
        if content:
            write(path, content)
        for options in ("", "--drop 0", "--label-column 0", "--index-column 0"):
            message = error_of(path, options)
            for remedy in re.findall(f"{NAMED}(?: {NAMED})*", message):
                if shlex.split(remedy) == shlex.split(options):  # what the message quotes
                    continue
                first = "" if remedy.split()[0] in options else options
                assert error_of(path, f"{first} {remedy}") != message, (name, options, remedy)
                tried += 1
    assert tried > 100
