"""``python -m tidegate``: the command line."""

from tidegate.cli.main import main

if __name__ == "__main__":
    main()
