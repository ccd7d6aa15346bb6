"""`python -m switchtower` is `tower`."""

from switchtower.cli.main import main

if __name__ == "__main__":
    main(prog_name="tower")
