"""Transforms for the stand-in of cuFFT (fft.c) by NumPy's FFT: all types and layouts, inverses without a factor."""

import ctypes
import math
import traceback
from dataclasses import dataclass

import numpy
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

SUCCESS, EXEC_FAILED = 0, 6
INVERSE = 1

# cufftType: the types of the input and of the output
TYPES: dict[int, tuple[str, str]] = {
    0x29: ("complex64", "complex64"),
    0x2A: ("float32", "complex64"),
    0x2C: ("complex64", "float32"),
    0x69: ("complex128", "complex128"),
    0x6A: ("float64", "complex128"),
    0x6C: ("complex128", "float64"),
}


class GivenLayout(ctypes.Structure):
    """The structure Layout of fft.c."""

    _fields_ = (
        ("is_default", ctypes.c_int),
        ("outer", ctypes.c_int * 3),
        ("step", ctypes.c_int),
        ("distance", ctypes.c_int),
    )


class Plan(ctypes.Structure):
    """The structure Plan of fft.c."""

    _fields_ = (
        ("made", ctypes.c_int),
        ("type", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("batch", ctypes.c_int),
        ("size", ctypes.c_int * 3),
        ("input", GivenLayout),
        ("output", GivenLayout),
    )


@dataclass(frozen=True)
class Layout:
    """Where the entries of a batch of arrays lie, counted in elements of their type.

    Attributes
    ----------
    outer : tuple of int
        Dimensions of the memory around one array; the first of them has no effect.
    step : int
        From one entry of the last dimension to the next.
    distance : int
        From one array to the next.
    """

    outer: tuple[int, ...]
    step: int
    distance: int


def view(address: int, dtype: str, batch: int, shape: tuple[int, ...], layout: Layout) -> NDArray:
    """Return the batch of arrays at an address, of shape (batch, *shape), without a copy."""
    itemsize = numpy.dtype(dtype).itemsize
    steps = [layout.step * math.prod(layout.outer[i + 1 :]) for i in range(len(shape))]
    strides = [layout.distance, *steps]
    last = sum((length - 1) * stride for length, stride in zip((batch, *shape), strides, strict=True))
    memory = (ctypes.c_byte * ((last + 1) * itemsize)).from_address(address)
    return as_strided(numpy.frombuffer(memory, dtype), (batch, *shape), [stride * itemsize for stride in strides])


def layout_of(given: GivenLayout, dtype: str, shape: tuple[int, ...], size: tuple[int, ...], in_place: bool) -> Layout:
    """Return the given layout, or that of contiguous arrays.

    Real arrays in the place of their complex results have rows as long as these.
    """
    if not given.is_default:
        return Layout(tuple(given.outer[: len(shape)]), given.step, given.distance)
    padded = in_place and dtype.startswith("float")
    outer = (*shape[:-1], 2 * (size[-1] // 2 + 1)) if padded else shape
    return Layout(outer, 1, math.prod(outer))


def transform(plan: Plan, source: int, target: int, direction: int) -> None:
    """Transform the arrays at the address `source` into those at `target`, as the plan says."""
    from_type, to_type = TYPES[plan.type]
    from_real, to_real = from_type.startswith("float"), to_type.startswith("float")
    size = tuple(plan.size[: plan.rank])
    half = (*size[:-1], size[-1] // 2 + 1)  # of the other half, a real array needs only the conjugates
    from_shape, to_shape = (half if to_real else size), (half if from_real else size)
    in_place = source == target
    from_layout = layout_of(plan.input, from_type, from_shape, size, in_place)
    to_layout = layout_of(plan.output, to_type, to_shape, size, in_place)
    values = view(source, from_type, plan.batch, from_shape, from_layout)
    result = view(target, to_type, plan.batch, to_shape, to_layout)
    axes = tuple(range(1, plan.rank + 1))
    # norm="forward" puts the factor 1/n on the forward transform, so that the inverse has none
    if from_real:
        result[...] = numpy.fft.rfftn(values, axes=axes)
    elif to_real:
        result[...] = numpy.fft.irfftn(values, s=size, axes=axes, norm="forward")
    elif direction == INVERSE:
        result[...] = numpy.fft.ifftn(values, axes=axes, norm="forward")
    else:
        result[...] = numpy.fft.fftn(values, axes=axes)


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Plan), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
def _called_by_c(plan: "ctypes._Pointer[Plan]", source: int, target: int, direction: int) -> int:
    """Return the status of a transform: an exception cannot pass through C."""
    try:
        transform(plan.contents, source, target, direction)
    except Exception:
        traceback.print_exc()
        return EXEC_FAILED
    return SUCCESS


ctypes.CDLL("libcufft.so").cupy_on_cpu_set_transform(_called_by_c)
