"""The methods that the command line offers, one object each.

A further method is a subclass of `Method` with its own options, and one entry of `METHODS`.
"""

from __future__ import annotations

from collections.abc import Callable

from gpukpca.cli.kernel_method import KernelMethod
from gpukpca.cli.latent_method import BayesianMethod, ProbabilisticMethod
from gpukpca.cli.local_method import LocalMethod
from gpukpca.cli.method import Method
from gpukpca.cli.pca_method import PCAMethod
from gpukpca.exceptions import InvalidParameterError

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        KernelMethod(),
        PCAMethod(),
        ProbabilisticMethod(),
        BayesianMethod(),
        LocalMethod(),
    )
}


def check_options(method: Method, given: Callable[[str], bool]) -> None:
    """Raise for an option that only other methods read."""
    for other in METHODS.values():
        for name in other.options:  # in their order, so that the same command is always told the same
            if name not in method.options and given(name):
                option = f"--{name.replace('_', '-')}"
                owners = " or ".join(owner.name for owner in METHODS.values() if name in owner.options)
                raise InvalidParameterError(
                    f"{option} does not apply to --method {method.name}; it is for --method {owners}."
                )
