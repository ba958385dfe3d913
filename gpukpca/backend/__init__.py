"""The shim: named gaps of the Array API standard, nothing else.

A function is here because the standard cannot say what it does; the first line of its comment gives the reason.
The array chooses the namespace. There is no backend class, no registry and no environment switch. Users of the parts
need the names exported here; the others serve the package.
"""

from gpukpca.backend.device import devices, synchronize, to_device
from gpukpca.backend.namespace import namespace_of, to_host

__all__ = ["devices", "namespace_of", "synchronize", "to_device", "to_host"]
