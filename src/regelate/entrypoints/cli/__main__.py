"""`python -m regelate.entrypoints.cli`: the command `regelate` where no script of that name was installed."""

from regelate.entrypoints.cli.program import main

if __name__ == "__main__":
    raise SystemExit(main())
