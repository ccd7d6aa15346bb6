"""`tower version`."""

import click

from switchtower import __version__
from switchtower.cli import output


@click.command()
def version() -> None:
    """Print the version.

    \b
    Example:
      tower version
    """
    output.write_line(f"switchtower {__version__}")
