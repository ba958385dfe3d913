"""Reading model files: data only, from a fixed table of classes, checked before anything is believed."""

from __future__ import annotations

import os
from typing import Any

from gpukpca._archive import read_archive
from gpukpca.backend.device import parsed_device
from gpukpca.decomposition.bayesian_pca import BayesianPCA
from gpukpca.decomposition.incremental_pca import IncrementalPCA
from gpukpca.decomposition.kernel_pca import KernelPCA
from gpukpca.decomposition.local_pca import LocalPCA
from gpukpca.decomposition.pca import PCA
from gpukpca.decomposition.probabilistic_pca import ProbabilisticPCA
from gpukpca.decomposition.saved.mixin import check_version, restored, write_model
from gpukpca.exceptions import ModelFormatError

ESTIMATORS = {cls.__name__: cls for cls in (KernelPCA, PCA, IncrementalPCA, ProbabilisticPCA, BayesianPCA, LocalPCA)}


def load(path: str | os.PathLike[str], device: str | None = None) -> Any:
    """The fitted estimator that ``model.save(path)`` wrote.

    Parameters
    ----------
    path : str or path
        Its name does not matter, only what is in it.
    device : None, "auto", "cpu", "cuda" or "cuda:N"
        The estimator's parameter `device`. None: new points are computed on the host, wherever the model was fitted.
        "cuda": what they need goes to the GPU now.

    Returns
    -------
    KernelPCA, PCA, IncrementalPCA, ProbabilisticPCA, BayesianPCA or LocalPCA
        Its arrays are NumPy's, in memory of their own.

    Raises
    ------
    ModelFormatError
        No model file, damaged, cut off, its parts contradict each other, or written by a newer version.
    OSError
        No such file, a directory, no permission.
    InvalidParameterError, DeviceUnavailableError
        About `device`.

    Notes
    -----
    Safe for files from anywhere: nothing in them is run, objects are made from a fixed table of classes, and no more
    memory is taken than the file has bytes, and what the checks need (p² items, and the basis made ready for the
    kernel and the pre-image). Cost: one reading of the file, and n p² operations.
    """
    return load_with_notes(path, device)[0]


def save_with_notes(model: Any, path: str | os.PathLike[str], notes: dict[str, Any]) -> None:
    """``model.save(path)`` with values of the caller's own beside the model.

    Parameters
    ----------
    model : fitted estimator with a method `save`
    path : str or path
    notes : dict
        Identifiers to numbers, text, None, arrays, and tuples, lists and dictionaries of those.
    """
    write_model(model, path, notes)


def load_with_notes(path: str | os.PathLike[str], device: str | None = None) -> tuple[Any, dict[str, Any]]:
    """`load`, and the notes that `save_with_notes` wrote; without any, an empty dictionary.

    Parameters
    ----------
    path : str or path
    device : as for `load`

    Returns
    -------
    (estimator, dict)
    """
    parsed_device(device)
    try:
        return restored(*read_archive(os.fspath(path), check_version), ESTIMATORS, device)
    except ModelFormatError as error:
        raise ModelFormatError(f"{os.fspath(path)} is no model file of gpukpca that can be read: {error}.") from error
