"""`tower stdio`: a protocol over this process's stdin and stdout, spoken by the daemon."""

import click

from switchtower.cli import console

PROTOCOLS = ("pi",)


@click.command()
@click.option("--protocol", required=True, metavar="NAME", help=f"What is spoken ({', '.join(PROTOCOLS)}).")
def stdio(protocol: str) -> int:
    """Speak a protocol with the daemon over stdin and stdout, one JSON object a line.

    Starts the daemon when none runs. Ends with 0 when the input has ended and the last answer was passed on, and with 1 when
    the daemon is gone.

    \b
    Example:
      tower stdio --protocol pi < commands.jsonl
    """
    if protocol not in PROTOCOLS:
        raise click.UsageError(f"`{protocol}` is not spoken here; hint: use one of {', '.join(PROTOCOLS)}")

    from switchtower.transports import descriptors

    try:
        claimed = descriptors.claim_stdio()  # before anything else is loaded that might print
    except OSError:
        console.print_error("stdin or stdout is not open", "connect both, as a pipe does")
        return console.ExitStatus.FAILED

    from switchtower import config
    from switchtower.cli import pump

    return pump.bridge_stdio(config.load(), *claimed)
