"""`tower mcp`: lists the MCP servers that a session in this folder would use, and tests them. It needs no daemon."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from switchtower.cli import arguments, console, output, table

if TYPE_CHECKING:
    from switchtower.cli.doctor import services
    from switchtower.tools.mcp import ServerConfig

_folder_option = arguments.folder_option("The folder whose `.mcp.json` counts too; by default this one.")
_timeout_option = arguments.amount_option(
    "--timeout", "SECONDS", "How long a server may take to be ready; 20 by default.", maximum=600
)


@click.group(invoke_without_command=True)
@click.pass_context
def mcp(ctx: click.Context) -> None:
    """See which MCP servers a session would have, and try them out. They are named in `mcp.json`; see docs/mcp.md.

    \b
    Example:
      tower mcp list
      tower mcp test github
    """
    if ctx.invoked_subcommand is None:
        output.write_line(ctx.get_help())


@mcp.command()
@click.option("--json", "as_json", is_flag=True, help="Print one object: your file, and this folder's.")
@_folder_option
def path(as_json: bool, folder: Path) -> int:
    """Print where your own servers are named, whether or not the file is there yet.

    \b
    Example:
      $EDITOR "$(tower mcp path)"
    """
    from switchtower import config

    file = config.load().mcp_file
    if as_json:
        import msgspec

        output.write_line(msgspec.json.encode({"own": str(file), "workspace": str(folder.absolute() / ".mcp.json")}))
    else:
        output.write_line(str(file))
    return console.ExitStatus.OK


@mcp.command("list", short_help="List the servers, and their tools with --tools")
@click.option("--tools", "with_tools", is_flag=True, help="Start your own servers for a moment and list their tools too.")
@click.option("--json", "as_json", is_flag=True, help="Print one object: servers, and what is wrong with the files.")
@_timeout_option
@_folder_option
def list_servers(with_tools: bool, as_json: bool, timeout: float | None, folder: Path) -> int:
    """List the servers that a session in this folder would have: yours, and those of the folder, which it would ask about.

    Exits with 1 when an entry cannot be used, or with --tools when a server of yours cannot be started.

    \b
    Example:
      tower mcp list
      tower mcp list --tools --json
    """
    import asyncio

    import msgspec

    from switchtower import config
    from switchtower.cli.doctor import services

    settings, folder = config.load(), folder.absolute()
    found = services.find_servers(settings, folder)
    probed: dict[str, services.ProbeResult] = {}
    if with_tools:
        tried = asyncio.run(services.probe_servers(settings, folder, timeout or services.TIMEOUT))
        probed = {one.name: one for one in tried}
    if as_json:
        servers = [_to_object(server, probed.get(server.name)) for server in found.servers]
        output.write_line(msgspec.json.encode({"servers": servers, "problems": found.problems}))
    else:
        _print_servers(found.servers, probed, settings.mcp_file)
    for problem in found.problems:
        console.print_line(problem, "yellow")
    failed = [one for one in probed.values() if not one.is_ok]
    for one in failed:
        _print_failure(one)
    return console.ExitStatus.FAILED if found.problems or failed else console.ExitStatus.OK


@mcp.command(short_help="Start a server for a moment and list its tools")
@click.argument("name", callback=arguments.validate_sendable)
@_timeout_option
@click.option("--yes", is_flag=True, help="Start a server of this folder's file without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@_folder_option
def test(name: str, timeout: float | None, yes: bool, as_json: bool, folder: Path) -> int:
    """Start the server NAME for a moment, list its tools and end it. Says why when it cannot be used.

    A server of this folder's `.mcp.json` came with whatever was cloned: you are shown what would be started, and asked.

    \b
    Example:
      tower mcp test github
      tower mcp test search --timeout 5 --json
    """
    import asyncio

    import msgspec

    from switchtower import config
    from switchtower.cli.doctor import services

    settings, folder = config.load(), folder.absolute()
    found = services.find_servers(settings, folder)
    server = next((one for one in found.servers if one.name == name), None)
    if server is None:
        raise click.ClickException(_describe_unknown(name, found.problems, [one.name for one in found.servers]))
    if not server.trusted and not yes:
        _confirm_start(server)
    probed = asyncio.run(services.probe_server(server, settings, folder, timeout or services.TIMEOUT))
    if as_json:
        output.write_line(msgspec.json.encode(_to_object(server, probed)))
    else:
        for row in table.format_rows(_format_tools(probed)):
            output.write_line(console.escape_unprintable(row))
    if not probed.is_ok:
        _print_failure(probed)
        return console.ExitStatus.FAILED
    for told in probed.told:
        console.print_line(told, "yellow")
    console.print_line(f"`{name}` has {len(probed.tools or ())} tools; it was ready after {probed.seconds:.1f} s")
    return console.ExitStatus.OK


def _describe_unknown(name: str, problems: tuple[str, ...], names: list[str]) -> str:
    from difflib import get_close_matches

    about = next((problem for problem in problems if f"`{name}`" in problem), None)
    if about is not None:
        return about if "hint: " in about else f"{about}; hint: correct that entry"
    near = get_close_matches(name, names, n=1)
    return f"there is no MCP server `{name}`; hint: {f'did you mean `{near[0]}`?' if near else 'see `tower mcp list`'}"


def _confirm_start(server: "ServerConfig") -> None:
    import sys

    for row in table.format_fields([(key, str(value)) for key, value in server.shown.items() if value]):
        console.print_line(row)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.ClickException(f"`{server.name}` is of this folder's file, and nobody can be asked; hint: --yes starts it")
    if not click.confirm("Start it?", default=False, err=True):
        raise click.Abort


def _to_object(server: "ServerConfig", probed: "services.ProbeResult | None") -> dict[str, Any]:
    """Describes a server as an approval shows it: variables are not expanded, and secrets are hidden."""
    described: dict[str, Any] = {
        "name": server.name,
        "own": server.trusted,
        **{k: v for k, v in server.shown.items() if k != "server"},
    }
    if probed is not None:
        described |= {
            "ok": probed.is_ok,
            "seconds": round(probed.seconds, 3),
            "told": list(probed.told),
            "tools": [
                {"name": one.name, "description": one.description, "readsOnly": one.reads_only} for one in probed.tools or ()
            ],
        }
    return described


def _print_servers(servers: "tuple[ServerConfig, ...]", probed: "dict[str, services.ProbeResult]", file: Path) -> None:
    if not servers:
        console.print_line(f"no servers; hint: name them in {file}, see docs/mcp.md")
        return
    cells = [
        (
            server.name,
            "yours" if server.trusted else "of the folder",
            str(server.shown.get("command") or server.shown.get("url") or "-"),
        )
        for server in servers
    ]
    for server, row in zip(servers, table.format_rows(cells), strict=True):
        output.write_line(console.escape_unprintable(row))
        if (one := probed.get(server.name)) is not None:
            for tool in table.format_rows(_format_tools(one)):
                output.write_line(console.escape_unprintable(f"  {tool}"))


def _format_tools(probed: "services.ProbeResult") -> list[tuple[str, str]]:
    """Returns each tool's name, and the first line of the server's description."""
    return [(tool.name, tool.description.partition("\n")[0]) for tool in probed.tools or ()]


def _print_failure(probed: "services.ProbeResult") -> None:
    for told in probed.told or (f"the MCP server `{probed.name}` cannot be had",):
        console.print_error(told, None if "hint: " in told else "see what it says when you run its `command` by hand")
