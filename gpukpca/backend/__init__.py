"""Functions that the Array API standard lacks.

The array chooses the namespace: there is no backend class, no registry and no environment switch. The names exported
here are public; the others serve the package.
"""

from gpukpca.backend.device import devices, synchronize, to_device
from gpukpca.backend.namespace import from_host, namespace_of, to_host

__all__ = ["devices", "from_host", "namespace_of", "synchronize", "to_device", "to_host"]
