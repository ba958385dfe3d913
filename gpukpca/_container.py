"""Containers: a JSON header and arrays by name in one safetensors file, with a digest of all of it.

Every reader of the safetensors format reads the arrays. `read_container` accepts exactly what `write_container` writes:
it runs no code, believes no size before comparing it with the file, and refuses all else.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from gpukpca._files import replaced_whole
from gpukpca._formatting import printable
from gpukpca.exceptions import InvalidParameterError, ModelFormatError

Header = dict[str, Any]
Arrays = dict[str, np.ndarray]

# The entry of the metadata of a safetensors file that holds everything but the arrays.
KEY = "gpukpca"
CODES = {np.dtype("<f8"): "F64", np.dtype("<f4"): "F32", np.dtype("<i8"): "I64", np.dtype("<i4"): "I32"}
LARGEST_HEADER = 10**7  # bytes: parsing takes about ten times as many
MOST_LEVELS = 64
LARGEST_INTEGER = 2**63 - 1
STRANGE = "it is damaged, cut off, or no safetensors file of gpukpca"
# What parts of the right types that do not belong together lead to.
CONTRADICTIONS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def write_container(path: str | os.PathLike[str], kind: str, header: Header, arrays: Arrays) -> None:
    """Write a file whole, as `write_content`: until all of it is on the disk, `path` is what it was.

    A link at `path` is replaced and not followed: somebody else may have put it there.
    """
    with replaced_whole(Path(path)) as (file,):
        write_content(file, kind, header, arrays)


def write_content(file: IO[bytes], kind: str, header: Header, arrays: Arrays) -> None:
    """Write a header and arrays to an open file. Equal content gives equal bytes.

    Parameters
    ----------
    file : binary file
    kind : str
        What the file is, such as "model"; `read_container` refuses other kinds.
    header : dict
        Text keys to numbers, text, True, False, None, and lists and dictionaries of those.
    arrays : dict
        Arrays of float64, float32, int64 or int32 by name. They keep C or Fortran order; other strides become C order.

    Raises
    ------
    InvalidParameterError
        A header of more than `LARGEST_HEADER` bytes or `MOST_LEVELS` levels, or with what JSON has no form for: NaN,
        infinity, integers beyond 64 bits, other objects. An array of another dtype.
    OSError
        No such folder, no permission, no space.
    """
    transposed = [name for name, array in arrays.items() if _is_transposed(array)]
    stored = {
        name: np.asarray(array.T if _is_transposed(array) else array, array.dtype.newbyteorder("<"), order="C")
        for name, array in arrays.items()
    }
    if other := sorted({str(array.dtype) for array in stored.values() if array.dtype not in CODES}):
        raise InvalidParameterError(f"arrays of {', '.join(other)} have no place in a file; convert them to float64.")
    try:
        _check_plain(header)
        head = _head(kind, "", header, transposed, stored)
    except (ModelFormatError, TypeError, ValueError, RecursionError) as error:
        raise InvalidParameterError(f"this {kind} has no place in a file: {error}.") from error
    if len(head) > LARGEST_HEADER:
        raise InvalidParameterError(
            f"the text of this {kind}, such as column names and parameters, takes {len(head)} bytes, and a file holds "
            f"{LARGEST_HEADER}. Fit an array without column names, or a kernel of fewer terms."
        )
    head = _head(kind, _digest(head, stored), header, transposed, stored)
    file.write(len(head).to_bytes(8, "little") + head)
    for _, array in _in_order(stored):
        file.write(array.data)


def read_container(path: str | os.PathLike[str], kind: str) -> tuple[Header, Arrays]:
    """Return the header and the arrays of a file of a kind; the arrays are writable and share nothing with the file.

    Raises
    ------
    ModelFormatError
        Anything that `write_container` does not write. The message is a clause about the file without its name.
    OSError
        No such file, a directory, no permission.
    """
    with _opened(path, kind) as (head, content, tensors):
        stored = {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118  # no mapping
        header, transposed, digest = content["header"], content["transposed"], content["sha256"]
        # safetensors accepts other spellings and keys that it does not know.
        if head != _head(kind, digest, header, transposed, stored):
            raise ModelFormatError("it is damaged, or other software wrote it: its header is not as gpukpca writes it")
        if digest != _digest(_head(kind, "", header, transposed, stored), stored):
            raise ModelFormatError("it is damaged: its content does not match its SHA-256 digest")
        turned = set(transposed)  # a list would be searched for every array
        return header, {name: array.T if name in turned else array for name, array in stored.items()}


def read_header(path: str | os.PathLike[str], kind: str) -> Header:
    """Return the header of a file of a kind, with no check of its digest; raise as `read_container`."""
    return read_outline(path, kind)[0]


def read_outline(path: str | os.PathLike[str], kind: str) -> tuple[Header, dict[str, tuple[str, tuple[int, ...]]], str]:
    """Return the header of a file, the dtypes and shapes of its arrays by name, and the digest that it states.

    No array is read, so nothing but the form of the header is checked. Raise as `read_container`.
    """
    with _opened(path, kind) as (_, content, tensors):
        outline, turned = {}, set(content["transposed"])
        for name in tensors.keys():  # noqa: SIM118  # no mapping
            stored = tensors.get_slice(name)
            shape = tuple(stored.get_shape())
            outline[name] = stored.get_dtype(), shape[::-1] if name in turned else shape
        return content["header"], outline, str(content["sha256"])


def is_container(path: str | os.PathLike[str], kind: str) -> bool:
    """Return whether a plain file begins as `write_container` begins files of a kind."""
    begin = _json({"__metadata__": {KEY: _json({"kind": kind})[:-1]}})[:-3].encode()
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(8 + len(begin))[8:] == begin


def _is_transposed(array: np.ndarray) -> bool:
    return array.flags.f_contiguous and not array.flags.c_contiguous


def _head(kind: str, digest: str, header: Header, transposed: list[str], stored: Arrays) -> bytes:
    """Return the header of the safetensors file; spaces at its end align the arrays to 8 bytes."""
    content = {"kind": kind, "sha256": digest, "transposed": transposed, "header": header}
    entries: Header = {"__metadata__": {KEY: _json(content)}}
    end = 0
    for name, array in _in_order(stored):
        start, end = end, end + array.nbytes
        entries[name] = {"dtype": CODES[array.dtype], "shape": list(array.shape), "data_offsets": [start, end]}
    text = _json(entries).encode()
    return text + b" " * (-len(text) % 8)


def _digest(head: bytes, stored: Arrays) -> str:
    """Return the SHA-256 digest of a header without digest and of the bytes of the arrays."""
    digest = sha256(head)
    for _, array in _in_order(stored):
        digest.update(array.data)
    return digest.hexdigest()


def _in_order(stored: Arrays) -> list[tuple[str, np.ndarray]]:
    """Return the arrays by name in the order of the file: long items first, so that all are aligned."""
    return sorted(stored.items(), key=lambda item: (-item[1].itemsize, item[0]))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _check_plain(value: Any, depth: int = 1) -> None:
    """Raise `ModelFormatError` for more levels or longer integers than a header may have, and for unprintable keys."""
    if depth > MOST_LEVELS:
        raise ModelFormatError(f"its header has more than {MOST_LEVELS} levels")
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise ModelFormatError("its header has an integer beyond 64 bits")
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        raise ModelFormatError("its header has a key that is not text")
    if isinstance(value, dict) and not all(printable(key) == key for key in value):
        raise ModelFormatError("its header has a key with control characters")
    if isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            _check_plain(part, depth + 1)


@contextmanager
def _opened(path: str | os.PathLike[str], kind: str) -> Iterator[tuple[bytes, Header, Any]]:
    """Yield the header of a safetensors file as bytes, its entry for this library, and the reader of its arrays."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):  # Windows would name a lack of permission
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    # Opening a pipe would wait for a writer, and a device has no end.
    if not stat.S_ISREG(mode):
        raise ModelFormatError("it is a device or a pipe, not a file")
    with open(path, "rb") as file, format_errors(STRANGE, SafetensorError, RecursionError, *CONTRADICTIONS):
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if length > min(size - 8, LARGEST_HEADER):
            raise ModelFormatError("it is empty, cut off, or no safetensors file of gpukpca")
        head = file.read(length)
        # The open file by its handle: `path` may be replaced at any time.
        handle = f"/dev/fd/{file.fileno()}"
        with safe_open(handle if os.path.exists(handle) else os.fspath(path), "numpy") as tensors:
            content = json.loads((tensors.metadata() or {}).get(KEY, "{}"))
            if content.get("kind") != kind:
                raise ModelFormatError(f"it is no {kind} of gpukpca but another safetensors file")
            _check_plain(content["header"])
            yield head, content, tensors


@contextmanager
def format_errors(clause: str, *kinds: type[Exception]) -> Iterator[None]:
    """Report errors of these kinds as `ModelFormatError`: a clause about the file, and the error in brackets."""
    try:
        yield
    except ModelFormatError:
        raise
    except kinds as error:
        message = printable(str(error))[:200]  # which may quote names of the file, as the cause would
        raise ModelFormatError(f"{clause} ({message})") from None
