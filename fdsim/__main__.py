"""`python -m fdsim` is `fdsim`."""

import os
import sys

from fdsim.cli.app import main

if __name__ == "__main__":
    # -m puts the current folder in front of everything installed; a json.py lying there would be imported for json.
    if sys.path and sys.path[0] in ("", os.getcwd()) and not sys.flags.safe_path:
        del sys.path[0]
    main()
