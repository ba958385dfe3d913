"""The file itself: one flat JSON header and named arrays in an uncompressed zip archive, which NumPy can read too.

Reading is made for files from anywhere. Nothing in a file is ever run, no size is believed before it is compared with
the bytes that are there, and all that is not exactly what `write_archive` writes is a `ModelFormatError`.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from scipy.sparse import issparse

from gpukpca._files import plain_target, replaced_whole
from gpukpca.exceptions import InvalidParameterError, ModelFormatError

Header = dict[str, Any]
Arrays = dict[str, np.ndarray]

HEADER = "header.json"
# The first bytes of every archive with something in it.
MAGIC = b"PK\x03\x04"
# Names are paths of identifiers and numbers, so that none can name a place outside.
NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+){0,63}")
MEMBER_NAME = re.compile(rf"({NAME.pattern})\.npy")
DTYPES = ("<f8", "<f4", "<i8", "<i4")
# The header of an array, to the letter as NumPy writes it: not a Python expression to evaluate.
ARRAY_HEADER = re.compile(
    rb"\{'descr': '(<[fi][48])', 'fortran_order': (True|False), 'shape': \(((?:[0-9]{1,19}, ?)*[0-9]{0,19},?)\), \} *\n"
)
LONGEST_ARRAY_HEADER = 500
MOST_DIMENSIONS = 3
MOST_MEMBERS = 2000
# The end of an archive without a comment: signature, numbers of the disk and of members, size and place of the
# directory of members, length of the comment.
END = struct.Struct("<4s4H2IH")
LARGEST_DIRECTORY = 2**20
LARGEST_HEADER = 10**6
# How far from orthonormal vectors, and from 1 a sum of weights, may be: rounding leaves 1e-5, damage does not.
SKEW = 1e-3
CHUNK = 2**22
LARGEST_INTEGER = 2**63 - 1
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every member, so that equal models make equal files
# What `zipfile` raises on damaged archives.
DAMAGE = (zipfile.BadZipFile, ValueError, RuntimeError, struct.error, EOFError, OverflowError, LookupError)


# -- writing -----------------------------------------------------------------------------------------------------------


def seen(value: Any) -> str:
    """Describe a value in a few words."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return f"{value.size} entries: {', '.join(map(repr, value[:5]))[:80]}"
    if isinstance(value, np.ndarray) or issparse(value):
        finite = bool(np.all(np.isfinite(value.data if issparse(value) else value)))
        return f"{value.dtype} of shape {value.shape}" + ("" if finite else " with NaN or infinity")
    return repr(value)[:80]


def write_archive(path: str | os.PathLike[str], header: Header, arrays: Arrays) -> None:
    """Write a file whole: until all of it is on the disk, `path` is what it was.

    The header holds numbers, strings, True, False, None, and lists of those. Raises `InvalidParameterError` where it
    has more than `LARGEST_HEADER` bytes.
    """
    lines = (f"{_json(key)}: {_json(value)}" for key, value in header.items())
    text = "\n".join(("{", ",\n".join(lines), "}", "")).encode()
    if len(text) > LARGEST_HEADER:
        raise InvalidParameterError(
            f"the text of this model, such as column names and parameters, takes {len(text)} bytes, and a file holds "
            f"{LARGEST_HEADER}. Fit an array without column names, or a kernel of fewer terms."
        )
    with replaced_whole(plain_target(path)) as (draft,), zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as archive:
        with _member(archive, HEADER, len(text)) as member:
            member.write(text)
        for name, array in arrays.items():
            with _member(archive, f"{name}.npy", array.nbytes + 1024) as member:
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _member(archive: zipfile.ZipFile, name: str, size: int) -> Any:
    """A member to write to; `size`, at least what will be written, decides whether 32 bits tell it."""
    info = zipfile.ZipInfo(name, date_time=EPOCH)
    info.file_size = size
    info.external_attr = 0o644 << 16
    return archive.open(info, "w")


# -- reading -----------------------------------------------------------------------------------------------------------


def read_archive(path: str | os.PathLike[str], check: Any) -> tuple[Header, Arrays]:
    """Return header and arrays of a file, in memory of their own.

    ``check(header)`` raises `ModelFormatError` for a header that cannot be understood, before any array is read.
    Anything that `write_archive` does not write is that error too; OSError where no such file can be read.
    """
    with _opened(path) as file, _understood(), zipfile.ZipFile(file) as archive:
        header, members = _described(archive, os.fstat(file.fileno()).st_size)
        check(header)
        return header, {name: _array(archive, info) for name, info in members.items()}


def read_header(path: str | os.PathLike[str]) -> tuple[Header, int]:
    """Header of a file, and a checksum of the whole content as the file itself claims it.

    Where `read_archive` can read all of the file, the claim is true. Raises as that does.
    """
    with _opened(path) as file, _understood(), zipfile.ZipFile(file) as archive:
        header, _ = _described(archive, os.fstat(file.fileno()).st_size)
        claimed = sorted(f"{info.filename} {info.file_size} {info.CRC}" for info in archive.infolist())
        return header, zlib.crc32("\n".join(claimed).encode())


def _described(archive: zipfile.ZipFile, size: int) -> tuple[Header, dict[str, zipfile.ZipInfo]]:
    """Header and arrays that an archive of so many bytes says to have."""
    members = _members(archive, size)
    if HEADER not in members:
        raise ModelFormatError(f"it has no member {HEADER}, so it is some other archive of arrays")
    if members[HEADER].file_size > LARGEST_HEADER:
        raise ModelFormatError(
            f"its {HEADER} has {members[HEADER].file_size} bytes, and at most {LARGEST_HEADER} are read"
        )
    with archive.open(members.pop(HEADER)) as member:
        return _header(member.read()), members


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A plain file; opening a pipe would wait for somebody to write to it, and a device has no end."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a directory says what is wrong
        raise ModelFormatError("it is a device or a pipe, not a file")
    with open(path, "rb") as file:
        _check_ends(file)
        yield file


def _check_ends(file: IO[bytes]) -> None:
    """Raise where a file does not begin and end as an archive of a few members; costs nothing, however long it is."""
    if file.read(len(MAGIC)) != MAGIC or file.seek(0, os.SEEK_END) < END.size:
        raise ModelFormatError("it is empty, cut off, or of another kind: it does not begin as a zip archive")
    file.seek(-END.size, os.SEEK_END)
    signature, *_, size, _, comment = END.unpack(file.read(END.size))
    if signature != b"PK\x05\x06" or comment:
        raise ModelFormatError("it is cut off, or something follows it: it does not end as a zip archive")
    if size > LARGEST_DIRECTORY:
        raise ModelFormatError("it has far more members than a model")


@contextmanager
def _understood() -> Iterator[None]:
    """Report errors inside as `ModelFormatError`."""
    try:
        yield
    except ModelFormatError:
        raise
    except (*DAMAGE, RecursionError) as error:
        raise ModelFormatError(f"it is damaged or cut off ({type(error).__name__}: {error})") from error
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise ModelFormatError("it is damaged: it names a place before its beginning") from error


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The members by name (arrays without their suffix), none of which claims what is not there."""
    infos = archive.infolist()
    if min((info.header_offset for info in infos), default=0) != 0:
        raise ModelFormatError("something comes before the archive, such as another one")
    if len(infos) > MOST_MEMBERS:
        raise ModelFormatError(f"it has {len(infos)} members; a model has a few dozen, or some a cluster")
    if sum(info.file_size for info in infos) > size:
        raise ModelFormatError(f"its members claim more bytes than the {size} of the file")
    members: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        match = MEMBER_NAME.fullmatch(info.filename)
        name = match[1] if match else info.filename
        if match is None and name != HEADER:
            raise ModelFormatError(f"it has a member named {name[:80]!r}")
        if name in members:
            raise ModelFormatError(f"it has two members named {info.filename!r}")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
            raise ModelFormatError(f"its member {info.filename} is compressed or encrypted")
        members[name] = info
    return members


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """An array, for which memory is taken once its size agrees with the size of the member."""
    with archive.open(info) as member:
        dtype, shape, fortran_order, start = _array_header(member, info.filename)
        claimed = math.prod(shape) * dtype.itemsize  # Python integers: no product is too large
        if start + claimed != info.file_size:
            raise ModelFormatError(
                f"{info.filename} claims the shape {shape}, which takes {claimed} bytes, and has "
                f"{info.file_size - start}"
            )
        data, place = np.empty(claimed, dtype=np.uint8), 0
        while chunk := member.read(CHUNK):
            data[place : place + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
            place += len(chunk)
    return data.view(dtype).reshape(shape, order="F" if fortran_order else "C")


def _array_header(member: IO[bytes], name: str) -> tuple[np.dtype, tuple[int, ...], bool, int]:
    """dtype, shape, order of the entries, and bytes before the first of them."""
    start = member.read(10)
    if start[:8] != b"\x93NUMPY\x01\x00" or len(start) < 10:
        raise ModelFormatError(f"{name} is not an array in NumPy's format 1.0")
    length = int.from_bytes(start[8:], "little")
    if length > LONGEST_ARRAY_HEADER:
        raise ModelFormatError(f"{name} has a header of {length} bytes")
    text = member.read(length)
    match = ARRAY_HEADER.fullmatch(text)
    if match is None or match[1].decode() not in DTYPES:
        raise ModelFormatError(f"{name} is not a plain array of {', '.join(DTYPES)}: {text[:80]!r}")
    shape = tuple(int(part) for part in match[3].decode().split(",") if part.strip())
    if len(shape) > MOST_DIMENSIONS:
        raise ModelFormatError(f"{name} has {len(shape)} dimensions")
    return np.dtype(match[1].decode()), shape, match[2] == b"True", 10 + length


def _header(text: bytes) -> Header:
    """The header, if it is flat JSON with every key once and finite numbers."""
    header = json.loads(
        text.decode("utf-8"),
        object_pairs_hook=_without_repetition,
        parse_constant=_no_number,
        parse_float=_finite,
        parse_int=_integer,
    )
    if not isinstance(header, dict):
        raise ModelFormatError(f"{HEADER} is not a JSON object")
    for key, value in header.items():
        if not NAME.fullmatch(key):
            raise ModelFormatError(f"{HEADER} has a key {key[:80]!r}")
        parts = value if isinstance(value, list) else [value]
        if any(isinstance(part, (list, dict)) for part in parts):
            raise ModelFormatError(f"{HEADER} is not flat: {key} holds lists or objects")
        for part in parts:
            if isinstance(part, str):
                part.encode("utf-8")  # raises for half of a surrogate pair, which nothing could print
    return header


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ModelFormatError(f"{HEADER} has a key twice")
    return found


def _no_number(word: str) -> Any:
    raise ModelFormatError(f"{HEADER} holds {word}, which is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ModelFormatError(f"{HEADER} holds the number {text[:40]}, which is beyond float64")
    return number


def _integer(text: str) -> int:
    # Twenty characters tell every integer that is allowed; to read a longer one costs the square of its length.
    if len(text) > 20 or abs(int(text)) > LARGEST_INTEGER:
        raise ModelFormatError(f"{HEADER} holds the integer {text[:40]}, which is beyond 64 bits")
    return int(text)
