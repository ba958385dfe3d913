"""The inputs of the command line: delimited text, NumPy files, bundled data sets, and the columns of each."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

from gpukpca.cli import table, text
from gpukpca.cli.inputs import BUNDLED, read_input
from gpukpca.exceptions import MemoryBudgetError
from tests.cli.runs import FOODS, OUT, done, fit, loaded, refused
from tests.cli.runs import text as write
from tests.each import each

# -- text --------------------------------------------------------------------------------------------------------------


TEXTS = [
    ("x.csv", "1,2\n3,4\n", {}, None),
    ("x.csv", "1,2\n3,4", {}, None),
    ("x.csv", "1,2\r3,4\r", {}, None),
    ("x.csv", "a,b\n1,2\n3,4\n", {}, "ab"),
    ("x.csv", "\n\na,b\n1,2\n\n3,4\n", {}, "ab"),
    ("x.csv", "\ufeffa,b\r\n1,2\r\n3,4\r\n\r\n\r\n", {}, "ab"),
    ("x.csv", "\ufeff1,2\n3,4\n", {}, None),
    ("x.csv", '"a","b"\n"1"," 2 "\n3,4\n,\n', {}, "ab"),
    ("x.csv", "a b\n1  2\n3 4\n", {"delimiter": " "}, "ab"),
    ("x.csv", "a;b\n1;2\n3;4\n", {"delimiter": ";"}, "ab"),
    ("x.csv", "a;b\n1,0;2,0e0\n3;+4,0\n", {"delimiter": ";", "decimal": ","}, "ab"),
    ("x.csv", "a.1;b.\n1,0;2\n3;4\n", {"delimiter": ";", "decimal": ","}, ("a.1", "b.")),
    ("x.csv", "a\tb\n1\t2.0\n\n3\t4\n", {"delimiter": "tab"}, "ab"),
    ("x.tsv", "a\tb\n1\t2.0\n\n3\t4\n", {}, "ab"),
    ("x.tsv", "1|2\n3|4\n", {"delimiter": "|"}, None),
    ("x.txt", "1 2\n3 4\n", {}, None),
    ("x.dat", "  a\t b \n  1 \t 2\n\n 3  4.0\n", {}, "ab"),
    ("x.txt", '"a" b\n1 2\n3 4', {}, "ab"),
    ("x.dat", "1 2,0\n3 4\n", {"decimal": ","}, None),
    ("x.txt", "1, 2\n3, 4\n", {"delimiter": ","}, None),
    ("x.dat", "a b;c d\n1;2\n3;4\n", {"delimiter": ";"}, ("a b", "c d")),
    ("x.txt", "# a b\n1 2\n3 4\n", {}, "ab"),
    ("x.txt", "# a\tb\n1\t2\n3\t4\n", {"delimiter": "\t"}, "ab"),
    ("x.dat", "# made by a program\n# a b\n\n1 2\n # half way\n#\n3 4\n# end\n", {}, "ab"),
    ("x.txt", "# made by a program\n1,2\n3,4\n", {"delimiter": ","}, None),
    ("x.txt", "# 1990 1991\n1 2\n3 4\n", {}, None),
]


def test_text_is_read_as_suffix_and_options_say():
    for name, content, options, names in TEXTS:
        read = read_input(write(name, content), **options)
        np.testing.assert_array_equal(read.X, [[1, 2], [3, 4]], err_msg=content)
        assert read.feature_names == (None if names is None else tuple(names)), content
        line = 1 + next(i for i, one in enumerate(content.splitlines()) if one.replace("# made by a program", ""))
        assert read.source == f"{name}, {'no header' if names is None else f'header: line {line}'}"


def test_the_mark_that_savetxt_puts_before_names_is_no_part_of_them():
    np.savetxt("x.txt", [[1, 2], [3, 4]], header="a b")
    assert read_input("x.txt", label_column="b").feature_names == ("a",)
    assert read_input(write("y.txt", "#a\tb\n1\t2\n")).feature_names == ("#a", "b")
    with pytest.raises(ValueError, match="line 3, column 1: 'x' is not a number"):
        read_input(write("x.txt", "# some comment here\n1 2\nx 3\n"))
    with pytest.raises(ValueError, match="line 2, column 2"):
        read_input(write("x.csv", "# a b\n1,2\n"))


def test_another_delimiter_or_decimal_sign_is_an_error_that_names_the_options():
    for name, content, place in (
        ("x.csv", "1 2\n3 4\n", "line 1, column 1: '1 2' is not a number"),
        ("x.csv", "1;2\n3;4\n", r"line 2, column 1 \(1;2\): '3;4' is not a number"),
        ("x.csv", "a;b\n1,5;2\n", "line 2, column 2: the row has 2 cells, and the first row 1 "),
        ("x.tsv", "1,234\t5\n1\t2\n", "line 1, column 1: '1,234' is not a number"),
        ("x.txt", "1 2\n3\n", r"line 2, column 2: the row has 1 cells, .* \(separated by ' '\)"),
        ("x.txt", "New York 1\nBoston 2\n", "line 2, column 3: the row has 2 cells"),
    ):
        with pytest.raises(ValueError, match=f"{name}, {place}.*--de(limiter|cimal)"):
            read_input(write(name, content))
    with pytest.raises(ValueError, match=r"line 1, column 1: '1\.234,5' is not a number"):
        read_input(write("x.csv", "1.234,5;2\n1,5;2\n"), delimiter=";", decimal=",")
    with pytest.raises(ValueError, match=r"line 2, column 1: '1\.5' is not a number"):
        read_input(write("x.csv", "1,5;2\n1.5;2\n"), delimiter=";", decimal=",")
    for delimiter in ("", ";;", "\n", '"', "1", "e", "€"):
        with pytest.raises(ValueError, match=r"--delimiter .* is not allowed; give tab, or one character"):
            read_input("x.csv", delimiter=delimiter)
    for options in ({"decimal": ","}, {"delimiter": "."}):
        with pytest.raises(ValueError, match=r"is also the delimiter of x\.csv; give another --delimiter"):
            read_input("x.csv", **options)


def test_columns_of_text_are_named_at_once_with_the_options_that_are_free():
    write("x.csv", "who,x,city,y,note\nAda,1,Rome,2,a\nBob,3,Oslo,4,\n")
    signs = "; --delimiter and --decimal say how numbers are written"
    names, labels = "; --index-column {} takes names", "; --label-column {} takes labels"
    all_, city = names.format("who") + labels.format("who"), labels.format("city")
    for options, advice in (
        ({}, f"--drop who,city,note leaves out such columns{all_}"),
        ({"index_column": "who"}, f"--drop city,note leaves out such columns{city}"),
        ({"index_column": "who", "label_column": "city"}, "--drop note leaves out such columns"),
        ({"columns": "x,city,note"}, f"leave city,note out of --columns{names.format('city')}{city}"),
        ({"transpose": True, "index_column": "who"}, "--drop city,note leaves out such columns"),
    ):
        with pytest.raises(ValueError, match=r"x\.csv, line 2") as caught:
            read_input("x.csv", **options)
        code = "; --missing a --rows complete if it marks missing cells" if "drop note" in advice else ""
        frame = "; pandas.get_dummies(pandas.read_csv('x.csv', sep=','), dummy_na=True).to_csv('x.csv', index=False)"
        code = code or f"{frame} codes categories" * ("who" in advice or "columns" in options)
        assert str(caught.value).endswith(f"not a finite one. What helps: {advice}{signs}{code}.")
        polars.read_csv("x.csv").write_parquet("x.parquet")
        with pytest.raises(ValueError, match=r"x\.parquet, row 0") as caught:
            read_input("x.parquet", **options)
        assert str(caught.value).endswith(f"not a finite one. What helps: {advice}.")
    # The advice is right for names that are numbers, have commas, or are none.
    for content, advice in (("1,a,b\n", "--drop 1,2 leaves"), ('"a,b",7,c\nu,v,1\n', "--drop 0,1 leaves")):
        with pytest.raises(ValueError, match=advice):
            read_input(write("y.csv", content), header=content.count("\n") > 1)


@pytest.mark.parametrize(("delimiter", "name"), [(",", "x.csv"), (";", "x.csv"), ("\t", "x.txt")])
def test_lines_of_any_length_are_read(delimiter: str, name: str):
    """Longer than the longest cell that the csv module takes."""
    for width in (2, 3000):
        X = (np.arange(3 * width) % 997 / 8).reshape(3, width)
        names = [f"gene {i:045}" for i in range(width)]
        rows = [names, *([str(value) for value in row] for row in X)]
        read = read_input(write(name, "\n".join(delimiter.join(row) for row in rows)), delimiter=delimiter)
        np.testing.assert_array_equal(read.X, X)
        assert read.feature_names == tuple(names)
    with pytest.raises(ValueError, match=r"line 1: field larger than field limit .*--delimiter"):
        read_input(name, delimiter="|")


CELLS = (
    *("1", "-2.5e3", "+.5", "1.", "nan", "NA", "", "?", "-", "inf", "1e999", " 7", "8 ", "x", '"9"', '"1,2"', '"a""b"'),
    *('a"b', '"', "1,5", "0x1", "1_0", "é", "\xa0", "\x1c", "\r", "'=1", "٣", "1e-400", "0.1234567890123456789"),
)


def scribble(chance: random.Random) -> tuple[bytes, str]:
    """Return a small table with cells and line ends of every kind, some of its bytes damaged, and its delimiter."""
    delimiter, width = chance.choice(",;\t "), chance.randint(1, 4)
    odd = chance.choice([0, 0, 0.05, 0.3])
    rows = [
        delimiter.join(
            chance.choice(CELLS) if chance.random() < odd else repr(chance.gauss(0, 10.0 ** chance.randint(-300, 300)))
            for _ in range(width if chance.random() > 0.03 else chance.randint(0, 5))
        )
        for _ in range(chance.randint(1, 6))
    ]
    if chance.random() < 0.1:
        rows.insert(chance.randrange(len(rows)), "# a comment")
    rows = ["", delimiter.join("abcd"[:width])][: chance.randint(0, 2)] + rows
    end = chance.choice(["\n", "\n", "\r\n", "\r"])
    content = bytearray((end.join(rows) + chance.choice(["", end, end + end, delimiter])).encode())
    for _ in range(chance.choice([0, 0, 2])):
        content[chance.randrange(len(content))] = chance.choice(b"\",;\n\r\t '#e-+.0x\xff\x00")
    return bytes(content), delimiter


def outcome(name: str, options: dict[str, Any]) -> list[Any]:
    """Return the parts of the table, or the message of the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read = read_input(name, **options)
    except ValueError as error:
        return [str(error)]
    labels = None if read.labels is None else (read.labels.dtype, *read.labels.tolist())
    return [read.X.tobytes(), read.X.shape, read.source, labels, read.sample_names, read.feature_names]


def test_the_fast_reader_agrees_with_the_exact_one(monkeypatch: pytest.MonkeyPatch):
    """The same numbers to the last bit, the same names, the same errors."""
    chance, fast, exact, used = random.Random(0), text._read_fast, {}, []
    for i in range(300):
        name = Path(f"x{i}.csv" if i % 2 else f"x{i}.txt")
        content, delimiter = scribble(chance)
        name.write_bytes(content)
        options = {"delimiter": chance.choice([None, delimiter]), "decimal": chance.choice([None, None, ","])}
        options |= {"missing": chance.random() < 0.5, "index_column": chance.choice([None, "0"])}
        options |= {"label_column": chance.choice([None, "-1"])}
        monkeypatch.setattr(text, "_read_fast", lambda *_: None)
        exact = outcome(str(name), options)
        monkeypatch.setattr(text, "_read_fast", lambda *args: used.append(fast(*args)) or used[-1])
        assert outcome(str(name), options) == exact, (name.read_bytes(), options)
    assert sum(one is not None for one in used) > 30


@pytest.mark.parametrize("missing", [False, True])
def test_usual_tables_take_the_fast_reader(monkeypatch: pytest.MonkeyPatch, missing: bool):
    monkeypatch.setattr(text, "_read_exactly", lambda *_: pytest.fail("read by the csv module"))
    X = np.random.default_rng(0).standard_normal((50, 4))
    name = [f"s{i}" if missing else f'"s{i}"' for i in range(50)]
    rows = [
        "name;a;b;c;d",
        *(f"{name[i]};" + ";".join(map(repr, map(float, row))).replace(".", ",") for i, row in enumerate(X)),
    ]
    if missing:
        rows[7], X[6, 3] = rows[7].rpartition(";")[0] + ";", np.nan
    content = "\r\n".join(rows) + "\r\n\r\n"
    how = {"delimiter": ";", "decimal": ",", "index_column": "name", "missing": missing}
    read = read_input(write("x.csv", content), **how)
    np.testing.assert_array_equal(read.X, X)
    assert read.sample_names == tuple(f"s{i}" for i in range(50))


# -- columns -----------------------------------------------------------------------------------------------------------


def test_names_and_labels_are_taken_by_name_and_by_number():
    write("x.csv", "who,x,y,kind\nAda,1,2,7\nBob,3,4,9\n")
    for index, label in (("who", "kind"), ("0", "-1"), ("0", "3")):
        read = read_input("x.csv", index_column=index, label_column=label)
        np.testing.assert_array_equal(read.X, [[1, 2], [3, 4]])
        assert (read.sample_names, read.feature_names) == (("Ada", "Bob"), ("x", "y"))
        assert read.labels.tolist() == [7, 9]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["7", "-9"], [7, -9]),
        (["+1", "-1"], [1.0, -1.0]),
        (["0.5", "1"], [0.5, 1.0]),
        (["0.5", "red"], ["0.5", "red"]),
        (["x", "?"], ["x", "?"]),
        (["001", "1", "01"], ["001", "1", "01"]),
        (["01.5", "1.5"], ["01.5", "1.5"]),
    ],
)
def test_labels_are_numbers_where_no_two_become_one_class(labels: list[str], expected: list[Any]):
    read = read_input(write("y.csv", "".join(f"1,{label}\n" for label in labels)), label_column="1")
    assert read.feature_names is None
    assert read.labels.tolist() == expected
    assert all(type(a) is type(b) for a, b in zip(read.labels.tolist(), expected, strict=True))


def test_numbers_among_missing_labels_stay_numbers_and_scores_keep_them():
    rows = "".join(f"s{i},{i},{i * i},{'NA' if i == 3 else i / 2}\n" for i in range(30))
    write("x.csv", f"who,x,y,age\n{rows}")
    labels = read_input("x.csv", index_column="who", label_column="age").labels
    np.testing.assert_array_equal(labels, [np.nan if i == 3 else i / 2 for i in range(30)])
    columns = ("--index-column", "who", "--label-column", "age")
    fit("x.csv", *columns, "-n", 2, "-o", "s.csv", "--plot", "p.svg", "--save", "m.safetensors")
    assert "<!-- age -->" in Path("p.svg").read_text(encoding="utf-8")
    done("transform", "m.safetensors", "x.csv", *columns, "-o", "t.csv")
    for name in ("s.csv", "t.csv"):
        lines = Path(name).read_text(encoding="utf-8").splitlines()
        assert lines[0] == "sample,label,component_1,component_2"
        assert [line.split(",")[:2] for line in lines[1:5]] == [
            ["s0", "0.0"],
            ["s1", "0.5"],
            ["s2", "1.0"],
            ["s3", "nan"],
        ]
        again = read_input(name, index_column="sample", label_column="label")
        np.testing.assert_array_equal(again.labels, labels)
        assert again.sample_names[29] == "s29"
    write("k.csv", "x,y,kind\n1,2,a\n3,5,b\n4,4,a\n")
    fit("k.csv", "--label-column", "-1", "-n", 2, "-o", "k.npz", "--plot", "k.svg")
    assert "<!-- kind -->" in Path("k.svg").read_text(encoding="utf-8")


TABLE = "id,age,name,x,y\n7,20,a,1,2\n8,21,b,3,4\n"


@pytest.mark.parametrize(
    ("options", "names", "X"),
    [
        ({"drop": "id,name"}, "age x y", [[20, 1, 2], [21, 3, 4]]),
        ({"drop": "0, -3"}, "age x y", [[20, 1, 2], [21, 3, 4]]),
        ({"drop": "id", "index_column": "name"}, "age x y", [[20, 1, 2], [21, 3, 4]]),
        ({"drop": "name,id", "label_column": "name"}, "age x y", [[20, 1, 2], [21, 3, 4]]),
        ({"columns": "y,age"}, "age y", [[20, 2], [21, 4]]),
        ({"columns": "3", "label_column": "name"}, "x", [[1], [3]]),
        ({"of_model": ("y", "x")}, "y x", [[2, 1], [4, 3]]),
        ({"of_model": ("p", "q"), "drop": "name"}, "id age x y", [[7, 20, 1, 2], [8, 21, 3, 4]]),
    ],
)
def test_columns_are_selected_and_left_out(options: dict, names: str, X: list):
    read = read_input(write("x.csv", TABLE), **options)
    np.testing.assert_array_equal(read.X, X)
    assert read.feature_names == tuple(names.split())


def test_columns_are_left_out_of_every_kind_of_input():
    read = read_input(write("x.csv", "a,1,2\nb,3,4\n"), drop="0")
    np.testing.assert_array_equal(read.X, [[1, 2], [3, 4]])
    assert read.feature_names is None
    assert read_input(write("y.csv", '"a,b",c\n1,2\n'), drop='"a,b"').feature_names == ("c",)
    np.save("x.npy", np.arange(6.0).reshape(2, 3))
    np.savez("x.npz", X=np.arange(6.0).reshape(2, 3))
    for name in ("x.npy", "x.npz"):
        np.testing.assert_array_equal(read_input(name, columns="0,2").X, [[0, 2], [3, 5]])
        np.testing.assert_array_equal(read_input(name, drop="1", transpose=True).X, [[0, 3], [2, 5]])
    assert len(read_input("iris", drop="sepal width (cm)").feature_names) == 3
    years = read_input(write("z.csv", "1990,kind,1991\n1,a,2\n"), of_model=("1991", "1990"))
    np.testing.assert_array_equal(years.X, [[2, 1]])


@each(
    "options, expected",
    [
        (("--drop", "none"), "--drop 'none': no such column of the 4 in iris"),
        (("--columns", "4"), "--columns '4': no such column"),
        (("--columns", "2,2"), "--columns: column '2' is given twice"),
        (("--drop", "0,-4"), "--drop: column '-4' is given twice"),
        (("--drop", "0", "--columns", "1"), "--columns and --drop contradict each other"),
        (("--drop", "0,1,2,3"), "--drop leaves no column"),
        (("--drop", ""), "give names or numbers, separated by commas"),
        (("--columns", "0,,1"), "give names or numbers, separated by commas"),
    ],
)
@each("command", [("fit", "iris", *OUT), ("plan", "iris")])
def test_a_wrong_selection_of_columns_is_refused(command: tuple, options: tuple, expected: str):
    assert expected in refused(*command, *options)


def test_a_header_is_detected_or_stated():
    years = write("x.csv", "1990,1991\n1,2\n3,4\n")
    assert read_input(years, header=False).X.shape == (3, 2)
    read = read_input(years, header=True)
    assert read.feature_names == ("1990", "1991")
    np.testing.assert_array_equal(read.X, [[1, 2], [3, 4]])
    assert read_input(years, header=True, label_column="1991").feature_names == ("1990",)
    with pytest.raises(ValueError, match="line 1, column 1: 'a' is not a number"):
        read_input(write("y.csv", "a,b\n1,2\n"), header=False)
    # A first row that starts with the number of a column is no header; an empty corner is one.
    assert read_input(write("z.csv", "0,1.5,2\n1,2.5,3\n"), index_column="0").sample_names == ("0", "1")
    assert read_input(write("c.csv", ",1990,1991\nAda,1,2\n"), index_column="0").feature_names == ("1990", "1991")


def test_an_index_without_a_name_holds_the_names_of_the_samples():
    body = "0,1,2\n3,4,5\n4,8,8\n"
    for first, names in ((",a,b", ("a", "b")), ('"","a","b"', ("a", "b")), (",0,1", ("0", "1"))):
        read = read_input(write("i.csv", f"{first}\n{body}"))
        assert (read.sample_names, read.feature_names) == (("0", "3", "4"), names)
        np.testing.assert_array_equal(read.X, [[1, 2], [4, 5], [8, 8]])
    text = write("t.csv", ",a,kind\nAda,1,u\nBob,2,v\n")
    for options in ({"label_column": "kind"}, {"drop": "kind"}):
        assert read_input(text, **options).sample_names == ("Ada", "Bob")
    fit(text, "--drop", "kind", "-n", 1, "-o", "s.csv", "-q")
    assert Path("s.csv").read_text().splitlines()[1].startswith("Ada,")
    polars.DataFrame({"a": [1.0, 2.0], "b": [3.0, 5.0], "__index_level_0__": [7, 9]}).write_parquet("i.parquet")
    read = read_input("i.parquet")
    assert (read.sample_names, read.feature_names) == (("7", "9"), ("a", "b"))
    # Columns that are asked for are data, and so is an empty cell of numbers.
    assert read_input(write("i.csv", f",a,b\n{body}"), columns="0,1").feature_names == ("", "a")
    with pytest.raises(ValueError, match="line 1, column 1: '' is a missing value"):
        read_input(write("m.csv", ",1.5,2\n1,2,3\n"), header=False)


# -- NumPy files, bundled sets, memory ---------------------------------------------------------------------------------


def test_archives_use_their_only_or_usual_matrix():
    x, y = np.arange(12.0).reshape(4, 3), np.arange(4)
    np.savez("one.npz", features=x, y=y)
    np.savez("usual.npz", other=x + 1, x_train=x, y=y, cube=np.zeros((4, 3, 2)))
    np.savez("named.npz", u=x, v=x + 1, who=np.array(["a", "b", "c", "d"]))
    np.testing.assert_array_equal(read_input("one.npz").X, x)
    read = read_input("usual.npz", label_column="y")
    np.testing.assert_array_equal(read.X, x)
    np.testing.assert_array_equal(read.labels, y)
    read = read_input("named.npz", key="v", index_column="who")
    np.testing.assert_array_equal(read.X, x + 1)
    assert read.sample_names == ("a", "b", "c", "d")


def test_npy_is_a_memory_map_and_dtype_is_kept_or_set():
    np.save("x.npy", np.eye(3, dtype=np.float32))
    assert isinstance(read_input("x.npy").X, np.memmap)
    assert read_input("x.npy", dtype="float64").X.dtype == np.float64
    np.save("u.npy", np.eye(5, dtype=np.uint8) * 255)
    for options, dtype in (((), np.float64), (("--dtype", "float32"), np.float32)):
        fit("u.npy", "-n", 2, *options, "--force", *OUT)
        assert loaded()["scores"].dtype == dtype


def test_more_than_the_free_memory_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch):
    write("foods.csv", FOODS)
    np.savez("x.npz", x=np.zeros((100, 100)))
    np.save("u.npy", np.zeros((100, 100), dtype=np.uint8))
    monkeypatch.setattr(table, "host_free_bytes", lambda: 1000)
    for name, needed in (("foods.csv", r"\d.\d KiB"), ("x.npz", "78.2 KiB"), ("u.npy", "78.2 KiB")):
        with pytest.raises(MemoryBudgetError, match=f"{needed} of memory, and 1000 B are free"):
            read_input(name)


def test_bundled_sets_have_labels_or_names_and_a_file_of_the_name_is_preferred():
    for name in BUNDLED:
        read = read_input(name)
        assert len(read.sample_names if read.labels is None else read.labels) == len(read.X)
    Path("iris").mkdir()
    assert read_input("iris").X.shape == (150, 4)
    Path("iris").rmdir()
    assert "files without an ending cannot be read" in refused("fit", write("iris", "1,2\n"), *OUT)
