"""Containers: what is written comes back to the last bit; everything else is refused."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from gpukpca._container import LARGEST_HEADER, MOST_LEVELS, is_container, read_container, read_header, write_container
from gpukpca._formatting import printable
from gpukpca.exceptions import InvalidParameterError, ModelFormatError

HEADER = {"number": 0.1, "texts": ["é\n", None, True], "nested": {"integer": -(2**63) + 1}}
ARRAYS = {
    "C": np.arange(6.0).reshape(2, 3),
    "Fortran": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
    "strided": np.arange(10, dtype=np.int32)[::2],
    "big endian": np.arange(3, dtype=">f4"),
    "scalar": np.array(np.nan),
    "empty": np.zeros((0, 3)),
    "empty twin": np.zeros((0, 3)),
    "integers": np.arange(3),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_container(tmp_path / "x", "model", HEADER, ARRAYS)
    return tmp_path / "x"


def test_header_and_arrays_come_back_to_the_last_bit(path: Path) -> None:
    header, arrays = read_container(path, "model")
    assert header == HEADER
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        twin = arrays[name]
        assert twin.dtype == array.dtype.newbyteorder("=")
        assert twin.shape == array.shape
        assert np.array_equal(twin, array, equal_nan=True)
        assert twin.flags.writeable
        assert twin.flags.aligned
        assert twin.flags.f_contiguous == (array.flags.f_contiguous or name == "strided")


def test_arrays_have_memory_of_their_own(path: Path) -> None:
    read_container(path, "model")[1]["C"][:] = 7
    assert np.array_equal(read_container(path, "model")[1]["C"], ARRAYS["C"])


def test_equal_content_gives_equal_bytes(path: Path, tmp_path: Path) -> None:
    write_container(tmp_path / "z", "model", *read_container(path, "model"))
    assert (tmp_path / "z").read_bytes() == path.read_bytes()


def test_any_reader_of_safetensors_reads_the_arrays(path: Path) -> None:
    arrays = load_file(path)
    assert np.array_equal(arrays["C"], ARRAYS["C"])
    assert np.array_equal(arrays["Fortran"].T, ARRAYS["Fortran"])


def test_the_header_can_be_read_alone(path: Path) -> None:
    assert read_header(path, "model") == HEADER
    with pytest.raises(ModelFormatError, match="no checkpoint"):
        read_header(path, "checkpoint")


def test_the_kind_is_seen_from_the_first_bytes(path: Path, tmp_path: Path) -> None:
    assert is_container(path, "model")
    assert not is_container(path, "mode")
    assert not is_container(tmp_path, "model")
    with pytest.raises(ModelFormatError, match="no checkpoint"):
        read_container(path, "checkpoint")


def mutations(content: bytes, count: int, seed: int) -> Any:
    """Yield mutated contents: flipped bits, changed, deleted and inserted bytes, swapped blocks."""
    draw = random.Random(seed)
    for _ in range(count):
        a, b = sorted(draw.sample(range(len(content)), 2))
        byte = bytes([draw.randrange(256)])
        flipped = bytes([content[a] ^ (1 << draw.randrange(8))])
        yield draw.choice(
            [
                content[:a] + flipped + content[a + 1 :],
                content[:a] + byte + content[a + 1 :],
                content[:a] + content[b:],
                content[:a] + byte + content[a:],
                content[b:] + content[:b],
                content[:b] + content[a:],
                content[:a] + bytes(b - a) + content[b:],
            ]
        )


def refused(path: Path, content: bytes) -> bool:
    """Return whether a content is refused with the one error that strange files give."""
    path.write_bytes(content)
    try:
        read_container(path, "model")
    except ModelFormatError:
        return True
    return False


def test_every_flipped_bit_and_every_prefix_is_refused(tmp_path: Path) -> None:
    write_container(tmp_path / "x", "model", {"a": 1.5}, {"A": np.asfortranarray(np.arange(4.0).reshape(2, 2))})
    content = (tmp_path / "x").read_bytes()
    for place, byte in enumerate(content):
        assert refused(tmp_path / "y", content[:place])
        for bit in range(8):
            assert refused(tmp_path / "y", content[:place] + bytes([byte ^ (1 << bit)]) + content[place + 1 :])
    assert refused(tmp_path / "y", content + b" ")
    assert not refused(tmp_path / "y", content)


def test_mutated_files_are_refused(path: Path, tmp_path: Path) -> None:
    """GPUKPCA_MUTATIONS=100000 tries more than every run of the suite."""
    content = path.read_bytes()
    for mutated in mutations(content, int(os.environ.get("GPUKPCA_MUTATIONS", "1000")), seed=0):
        assert refused(tmp_path / "y", mutated) or mutated == content


def raw(head: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """Return a safetensors file with a header as it is given."""
    head = head.encode() if isinstance(head, str) else head
    return (len(head) if length is None else length).to_bytes(8, "little") + head + data


def foreign(header: str = "{}", array: str = "", **content: Any) -> bytes:
    """Return a file whose metadata are those of a model, but for some parts."""
    known = {"kind": "model", "sha256": "0" * 64, "transposed": [], "header": None} | content
    text = json.dumps(known).replace('"header": null', f'"header": {header}')
    return raw(f'{{"__metadata__": {json.dumps({"gpukpca": text})}{array}}}')


HOSTILE = {
    "empty": b"",
    "a length alone": bytes(8),
    "an array of another program": raw('{"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}', bytes(8)),
    "a length of 100 MB": raw("{}", length=10**8),
    "a length of 2^63": raw("{}", length=2**63),
    "no JSON": raw("{"),
    "deep JSON": raw("[" * 10**5),
    "metadata without arrays": raw('{"__metadata__": {}}'),
    "metadata that are a list": raw('{"__metadata__": []}'),
    "a header that is a number": raw('{"__metadata__": {"gpukpca": "3"}}'),
    "a header that is no JSON": raw('{"__metadata__": {"gpukpca": "{"}}'),
    "a wrong digest": foreign(),
    "an unprintable key": foreign('{"\\u001b": 1}'),
    "an unprintable array": foreign(array=', "\\u001b": {"dtype": "F64", "shape": [9], "data_offsets": [0, 8]}'),
    "a key twice": foreign('{"a": 1, "a": 1}'),
    "NaN": foreign('{"a": NaN}'),
    "a number beyond float64": foreign('{"a": 1e999}'),
    "an integer beyond 64 bits": foreign('{"a": 9223372036854775808}'),
    "an integer of a million digits": foreign('{"a": ' + "9" * 10**6 + "}"),
    "half of a surrogate pair": foreign('{"a": "\\ud800"}'),
    "a deep header": foreign("[" * 10**5 + "]" * 10**5),
    "one level too many": foreign("[" * (MOST_LEVELS + 1) + "]" * (MOST_LEVELS + 1)),
    "a kind that is a list": foreign(kind=["model"]),
    "a digest that is a number": foreign(sha256=0),
    "names that are numbers": foreign(transposed=[[]]),
    "half precision": foreign(array=', "a": {"dtype": "F16", "shape": [0], "data_offsets": [0, 0]}'),
    "bfloat16": foreign(array=', "a": {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]}'),
    "a shape beyond 64 bits": foreign(
        array=', "a": {"dtype": "F64", "shape": [0, 4611686018427387904, 8], "data_offsets": [0, 0]}'
    ),
    "100 axes": foreign(array=f', "a": {{"dtype": "F64", "shape": {[0] * 100}, "data_offsets": [0, 0]}}'),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused(case: str, tmp_path: Path) -> None:
    (tmp_path / "y").write_bytes(HOSTILE[case])
    with pytest.raises(ModelFormatError) as failure:
        read_container(tmp_path / "y", "model")
    assert printable(str(failure.value)) == str(failure.value)
    assert failure.value.__cause__ is None


def test_a_long_header_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    with open(tmp_path / "y", "wb") as file:
        file.write((LARGEST_HEADER + 1).to_bytes(8, "little"))
        file.truncate(LARGEST_HEADER + 100)
    with pytest.raises(ModelFormatError, match="cut off"):
        read_container(tmp_path / "y", "model")


@pytest.mark.parametrize(
    ("header", "arrays", "message"),
    [
        ({"a": float("nan")}, {}, "JSON"),
        ({"a": 2**63}, {}, "64 bits"),
        ({"a": object()}, {}, "object"),
        ({"a": {1: 2}}, {}, "a key that is not text"),
        ({"a": "\ud800"}, {}, "surrogates"),
        ({"a": "x" * LARGEST_HEADER}, {}, "column names"),
        ({}, {"a": np.zeros(2, np.float16)}, "float16"),
        ({}, {"a": np.zeros(2, object)}, "object"),
    ],
)
def test_what_has_no_form_is_refused_before_anything_is_written(
    header: dict[str, Any], arrays: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        write_container(tmp_path / "x", "model", header, arrays)
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="devices and pipes as on POSIX")
def test_devices_and_pipes_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("/dev/null", tmp_path / "pipe"):
        with pytest.raises(ModelFormatError, match="a device or a pipe"):
            read_container(name, "model")


def test_directories_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_container(tmp_path, "model")
    with pytest.raises(FileNotFoundError):
        read_container(tmp_path / "none", "model")
