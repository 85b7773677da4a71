"""`python -m fdsim` is `fdsim`."""

from fdsim.cli.app import main

if __name__ == "__main__":
    main()
