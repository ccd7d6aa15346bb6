"""`tower logs`: the daemon's log, its end or as it grows. Reads files; no daemon is asked or started."""

import click

from switchtower.cli import console, output


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with what is logged from now on; Ctrl-C ends it.")
@click.option(
    "-n", "--lines", "count", type=click.IntRange(0, 1_000_000), default=50, metavar="N", help="How many; 50 by default."
)
@click.option("--json", "as_json", is_flag=True, help="Print one object a line: time, level, logger, message.")
def logs(follow: bool, count: int, as_json: bool) -> int:
    """Print the last N lines of the daemon's log. Secrets were hidden when it was written.

    With --json a line that goes on from the one before it, as in a traceback, has a message only. When the log is rotated
    while it is followed, no line is missed.

    \b
    Example:
      tower logs -n 200
      tower logs -f
      tower logs --json | jq 'select(.level == "WARNING")'
    """
    from switchtower import config
    from switchtower.cli import logbook

    path = config.load().log_path
    if not follow and not logbook.list_log_files(path):
        raise click.ClickException(f"there is no log at `{path}`; hint: a daemon writes it, start one with `tower serve`")
    last = logbook.LogFollower(path)
    try:
        for line in last.read_tail(count, following=follow):
            _print_log_line(line, as_json=as_json)
        if follow:
            for line in last.follow_lines(_print_missed):
                _print_log_line(line, as_json=as_json)
    except KeyboardInterrupt:
        pass  # how following ends
    except OSError as problem:
        raise click.ClickException(f"`{path}` cannot be read: {problem.strerror}; hint: see whose file it is") from None
    finally:
        last.close()
    return console.ExitStatus.OK


def _print_missed() -> None:
    console.print_line("the log went away while it was read; lines may be missing", "yellow")


def _print_log_line(line: bytes, *, as_json: bool) -> None:
    from switchtower.cli import logbook

    if as_json:
        import msgspec

        output.write_line(msgspec.json.encode(logbook.parse_entry(line)))
    elif output.is_terminal():
        output.write_line(console.escape_unprintable(line.decode(errors="replace")))
    else:
        output.write_line(line)
