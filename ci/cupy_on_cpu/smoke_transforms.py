"""Part of smoke.py: Fourier transforms by cupy.fft and by plans of cuFFT, against numpy.fft."""

import ctypes

import cupy
import numpy as np
from comparisons import Array, Report
from cupy.cuda import cufft


def compare_transforms(report: Report) -> None:
    rng = np.random.default_rng(1)
    real = rng.standard_normal((4, 6, 10))
    values = real + 1j * rng.standard_normal((4, 6, 10))
    cases: list[tuple[str, Array, dict]] = [
        (name, array, named)
        for names, array, choices in (
            (("fft", "ifft"), values, ({}, {"axis": 0}, {"n": 7}, {"n": 13, "norm": "ortho"})),
            (("rfft", "ihfft"), real, ({}, {"axis": 1}, {"n": 7})),
            (("irfft", "hfft"), values, ({}, {"axis": 1}, {"n": 9, "norm": "forward"})),
            (("fft2", "ifft2", "irfft2"), values, ({}, {"axes": (0, 1)})),
            (("fftn", "ifftn", "irfftn"), values, ({}, {"s": (3, 5), "axes": (1, 2)})),
            (("rfft2", "rfftn"), real, ({}, {"axes": (1, 2)}, {"axes": (2, 1)})),
        )
        for name in names
        for named in choices
    ]
    for name, array, named in cases:
        for single in (False, True):
            source = array.astype({"f": "f", "c": "F"}[array.dtype.kind]) if single else array
            got, expected = (
                getattr(cupy.fft, name)(cupy.asarray(source), **named),
                getattr(np.fft, name)(source, **named),
            )
            scale = 1 + np.abs(expected).max()
            what = ", ".join([f"{name} of {source.dtype}", *(f"{key} {value}" for key, value in named.items())])
            report.same(what, got, expected, scale * (2e-6 if single else 1e-14))
    columns = cupy.asarray(np.asfortranarray(values))
    report.same("fftn of a column-major array", cupy.fft.fftn(columns), np.fft.fftn(values), 1e-12)
    report.same("fft of every other row", cupy.fft.fft(columns[:, ::2]), np.fft.fft(values[:, ::2]), 1e-12)
    report.same("fft of no rows", cupy.fft.fft(cupy.empty((0, 4), "F")), np.empty((0, 4), "F"))


def compare_plans(report: Report) -> None:
    """Compare plans of cuFFT with layouts that cupy.fft does not use."""
    rng = np.random.default_rng(2)
    values = rng.standard_normal((8, 3)) + 1j * rng.standard_normal((8, 3))
    x = cupy.asarray(values)
    plan = cufft.PlanNd((8,), (8,), 3, 1, (8,), 1, 8, cufft.CUFFT_Z2Z, 3, "C", -1, None)
    out = cupy.zeros((3, 8), "D")
    plan.fft(x, out, cufft.CUFFT_FORWARD)
    report.same("plan from columns (step 3, distance 1) to rows", out, np.fft.fft(values, axis=0).T, 1e-13)
    inner = cupy.zeros((2, 5, 7), "D")
    inner[:, 1:4, 2:6] = cupy.asarray(rng.standard_normal((2, 3, 4)))
    plan = cufft.PlanNd((3, 4), (5, 7), 1, 35, (3, 4), 1, 12, cufft.CUFFT_Z2Z, 2, "C", -1, None)
    out = cupy.zeros((2, 3, 4), "D")
    plan.fft(inner.ravel()[9:], out, cufft.CUFFT_INVERSE)
    expected = np.fft.ifftn(cupy.asnumpy(inner)[:, 1:4, 2:6], axes=(1, 2), norm="forward")
    report.same("inverse plan of 3 x 4 parts of 5 x 7 arrays, without a factor", out, expected, 1e-13)
    padded = np.zeros((2, 8))
    padded[:, :6] = rng.standard_normal((2, 6))
    both = cupy.asarray(padded)
    cufft.Plan1d(6, cufft.CUFFT_D2Z, 2).fft(both, both, cufft.CUFFT_FORWARD)
    report.same("real plan in place, padded rows", both.view("D"), np.fft.rfft(padded[:, :6]), 1e-13)
    cufft.Plan1d(6, cufft.CUFFT_Z2D, 2).fft(both, both, cufft.CUFFT_INVERSE)
    report.same("and back, without a factor", both[:, :6], 6 * padded[:, :6], 1e-13)
    single = cufft.Plan1d(6, cufft.CUFFT_C2C, 1)
    arguments = (single.handle, x.data.ptr, x.data.ptr, cufft.CUFFT_FORWARD)
    name = "CUFFT_INVALID_PLAN"
    report.refused("execZ2Z of a plan of C2C", cufft.CuFFTError, name, lambda: cufft.execZ2Z(*arguments))
    library, handle = ctypes.CDLL("libcufft.so"), ctypes.c_int()
    library.cufftCreate(ctypes.byref(handle))
    library.cufftDestroy(handle)
    report.same("status of cufftDestroy of a destroyed plan (invalid plan: 1)", [library.cufftDestroy(handle)], [1])
