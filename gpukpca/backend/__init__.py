"""Functions that the Array API standard lacks.

The array chooses the namespace: there is no backend class, no registry and no environment switch. The names exported
here are public; the others serve the package.
"""

from gpukpca._former import keep_former_names
from gpukpca.backend.device import devices, to_device
from gpukpca.backend.namespace import to_host

__all__ = ["devices", "to_device", "to_host"]

keep_former_names(__name__)
