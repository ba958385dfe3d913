"""``python -m gpukpca``: the command line."""

from gpukpca.cli import main

if __name__ == "__main__":
    main()
