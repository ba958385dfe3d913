"""A client for as long as some work takes, from the address of a scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpukpca.exceptions import ClusterError, InvalidParameterError

# Seconds until a scheduler has answered.
TIMEOUT = 10


@contextmanager
def connected(address: str, timeout: float = TIMEOUT) -> Iterator[Any]:
    """A Dask client of the scheduler at an address such as tcp://10.0.0.1:8786, closed at the end.

    It is the active client inside.

    Raises
    ------
    InvalidParameterError
        The address is none.
    ClusterError
        Dask is not installed, or nobody answers there.
    """
    try:
        from distributed import Client
        from distributed.comm.addressing import get_address_host_port, normalize_address
    except ImportError as error:
        raise ClusterError(f"Dask is not installed ({error}); pip install 'gpukpca[dask]'.") from error
    try:
        get_address_host_port(normalize_address(address))  # a client with a wrong one would not end cleanly
        client = Client(address, timeout=timeout, set_as_default=False)
    except ValueError as error:
        raise InvalidParameterError(
            f"{address!r} is no address of a scheduler ({error}); give what `dask scheduler` printed, such as "
            "tcp://10.0.0.1:8786."
        ) from error
    except OSError as error:
        raise ClusterError(
            f"no scheduler answers at {address!r} within {timeout:g} s. Give the address that `dask scheduler` "
            "printed, such as tcp://10.0.0.1:8786."
        ) from error
    with client, client.as_current():
        yield client
