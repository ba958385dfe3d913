"""Start the command line when Python is given this folder.

Isolated mode (`-I`) has no path on which the package could be found.
"""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from translator.command_line import main

main()
