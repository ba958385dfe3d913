"""Standardized columns by scikit-learn's StandardScaler, kept in the notes of a model file."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from gpukpca.backend.finite import check_finite
from gpukpca.cli.table import check_memory
from gpukpca.exceptions import ModelFormatError


def fit_scaler(X: np.ndarray, missing: bool) -> tuple[np.ndarray, StandardScaler]:
    """Return the standardized columns and the scaler; NaN stays where `missing` allows it."""
    check_finite(X, "Impute or drop missing values first.", missing=missing)
    check_memory(X.size * (4 if X.dtype == np.float32 else 8), "the standardized matrix")
    scaler = StandardScaler()
    return scaler.fit_transform(X), scaler


def scaler_line(scaler: StandardScaler) -> str:
    """Return the line of the report."""
    # The scale of a constant column is 1, whatever its rounded variance.
    constant = int(np.sum((scaler.scale_ == 1.0) & (scaler.var_ != 1.0)))
    line = f"{len(scaler.scale_) - constant} columns to mean 0 and standard deviation 1 (over n)"
    return line + (f"; {constant} constant, only centered" if constant else "")


def scaler_notes(scaler: StandardScaler | None) -> dict[str, np.ndarray] | None:
    """Return the fitted numbers of a scaler for the notes of a model file."""
    return None if scaler is None else {"mean": scaler.mean_, "scale": scaler.scale_}


def scaler_from(notes: Any, n_features: int) -> StandardScaler | None:
    """Return the scaler that the notes of a model file describe, None where columns were not standardized."""
    if notes is None:
        return None
    arrays = [np.asarray(notes.get(name)) for name in ("mean", "scale")] if isinstance(notes, dict) else []
    valid = [a.shape == (n_features,) and a.dtype == np.float64 and bool(np.all(np.isfinite(a))) for a in arrays]
    if len(valid) != 2 or not all(valid) or not np.all(arrays[1] > 0):
        raise ModelFormatError("the file says how columns were standardized, but not for those of its model.")
    scaler = StandardScaler()
    scaler.mean_, scaler.scale_ = arrays
    scaler.var_, scaler.n_features_in_ = arrays[1] ** 2, n_features
    return scaler
