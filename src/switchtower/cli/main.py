"""The table of commands. Importing this module loads only click; each command's imports wait until it is called."""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from switchtower import __version__
from switchtower.cli import console

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class CommandEntry(NamedTuple):
    """A row of the table. `module` is a file in `cli/commands`; the command in it has the row's name."""

    name: str
    module: str
    help: str


COMMANDS = (
    CommandEntry("setup", "setup", "Choose the model and the policy at a first start, and test the key"),
    CommandEntry("serve", "serve", "Run the daemon in the foreground"),
    CommandEntry("status", "daemon", "Say whether the daemon runs, where it listens and what waits"),
    CommandEntry("stop", "daemon", "Stop the daemon"),
    CommandEntry("restart", "daemon", "Stop the daemon and start it again; sessions continue"),
    CommandEntry("stdio", "stdio", "Speak a protocol with the daemon over stdin and stdout"),
    CommandEntry("ui", "attach", "Open the terminal UI; `tower` alone does too"),
    CommandEntry("run", "run", "Start a run in a new session and wait for its outcome"),
    CommandEntry("exec", "attach", "Run any program in a terminal that outlives this one"),
    CommandEntry("sessions", "sessions", "List the sessions, the last used first"),
    CommandEntry("show", "sessions", "Print what a session is and does: model, policy, usage, queue"),
    CommandEntry("attach", "attach", "Watch a session from any point of its history"),
    CommandEntry("send", "send", "Send a message to a session"),
    CommandEntry("steer", "send", "Tell a run that is under way something"),
    CommandEntry("approve", "approvals", "Let a waiting action happen"),
    CommandEntry("deny", "approvals", "Refuse a waiting action"),
    CommandEntry("answer", "answer", "Answer what an extension or the agent asks, or list what is asked"),
    CommandEntry("inbox", "approvals", "List what waits for a decision, of all sessions and hosts"),
    CommandEntry("audit", "audit", "List who decided what, from where and when, over all sessions"),
    CommandEntry("cancel", "send", "Cancel a session's run"),
    CommandEntry("diff", "session_changes", "Print what a session changed in its folder"),
    CommandEntry("undo", "session_changes", "Take back what a session's last run changed, or make it again"),
    CommandEntry("compact", "session_changes", "Summarise a session's conversation, so that its context is small again"),
    CommandEntry("configure", "session_changes", "Change a session's model, policy or title"),
    CommandEntry("rename", "session_changes", "Give a session a title"),
    CommandEntry("export", "sessions", "Write a session as Markdown, HTML or JSON lines"),
    CommandEntry("search", "sessions", "Find words in all sessions"),
    CommandEntry("fork", "session_changes", "Begin a new session with the conversation of another"),
    CommandEntry("delete", "sessions", "Delete sessions for good"),
    CommandEntry("models", "catalog", "List the usable models, and why the others are not"),
    CommandEntry("login", "setup", "Store a provider's key in the system keyring"),
    CommandEntry("logout", "setup", "Remove a provider's stored key"),
    CommandEntry("skills", "catalog", "List skills, prompt templates and the commands of extensions"),
    CommandEntry("presets", "catalog", "List the presets that a session can begin with, and why some cannot be used"),
    CommandEntry("flow", "flow", "Run flows on a runtime, check and compile them; `tm` is short for it"),
    CommandEntry("host", "serve", "Run a daemon that dials a hub, so that this machine can be worked on from there"),
    CommandEntry("user", "accounts", "Say who may log in, and with which password"),
    CommandEntry("hosts", "hosts", "List the hosts of this hub, and say which may stay"),
    CommandEntry("nodes", "nodes", "List the nodes that share one store, and which session is whose"),
    CommandEntry("drain", "nodes", "Empty this node: hand its sessions and clients to the others"),
    CommandEntry("token", "accounts", "List and revoke logins, or print the page's address"),
    CommandEntry("trust", "trust", "List the folders whose instructions count, and trust others"),
    CommandEntry("mcp", "mcp", "List the MCP servers that a session would have, and try them out"),
    CommandEntry("config", "config", "See and change the settings"),
    CommandEntry("doctor", "diagnostics", "Look at everything that the daemon needs, and say what to do about what is wrong"),
    CommandEntry("logs", "diagnostics", "Print the daemon's log, or follow it"),
    CommandEntry("journal", "journal", "Check the journal's file, or count what is in it"),
    CommandEntry("backup", "store", "Write the journal, settings and users to one file"),
    CommandEntry("restore", "store", "Bring back what a backup holds"),
    CommandEntry("store", "store", "Move between SQLite and PostgreSQL"),
    CommandEntry("service", "installation", "Run the daemon as a service of your own: systemd or launchd"),
    CommandEntry("completion", "installation", "Print a script that lets a shell complete commands"),
    CommandEntry("version", "installation", "Print the version"),
)
ALIASES = {"users": "user", "tokens": "token"}
"""Other names of commands, which no list shows."""
_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
_BY_NAME = {row.name: row for row in COMMANDS}
_BY_NAME |= {alias: _BY_NAME[name] for alias, name in ALIASES.items()}


class CommandGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [row.name for row in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = _BY_NAME.get(cmd_name)
        if row is None:
            return None
        command = getattr(import_module(f"switchtower.cli.commands.{row.module}"), row.name)
        assert isinstance(command, click.Command), f"`{row.name}` is not a command"
        command.short_help = row.help
        if _is_completing():
            from switchtower.cli import shell_completion

            shell_completion.install_completions(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Replaces click's method, which would load every command to check whether it is hidden."""
        from click.shell_completion import CompletionItem

        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(row.name, help=row.help) for row in COMMANDS if row.name.startswith(incomplete)), *options]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _BY_NAME and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(args[0], _BY_NAME, n=1)
            hint = f"did you mean `{near[0]}`?" if near else "see `tower --help`"
            raise click.UsageError(f"there is no command `{args[0]}`; hint: {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(row.name, row.help) for row in COMMANDS])


def _is_completing() -> bool:
    """Returns whether a shell asks for completions: click's scripts set a variable named after the program."""
    return any(name.startswith("_") and name.endswith("_COMPLETE") for name in os.environ)


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings=_SETTINGS,
    epilog="`tower COMMAND --help` explains one command, with an example.",
)
@click.version_option(__version__, "--version", message="switchtower %(version)s")
@click.pass_context
def tower(ctx: click.Context) -> int | None:
    """One daemon that holds coding-agent sessions: journalled, gated, and open to any client.

    Alone it opens the terminal UI; everything that does is a command too. A command that needs the daemon starts it when none
    runs.

    \b
    Example:
      tower
      tower run --headless --provider demo "read README.md"
      tower sessions
      tower attach last
    """
    if ctx.invoked_subcommand is not None:
        return None
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout)):
        click.echo(ctx.get_help())
        return None
    from switchtower.cli.commands import attach

    return attach.open_ui(None, None)


def main(args: list[str] | None = None, prog_name: str | None = None) -> NoReturn:
    def call() -> Any:
        return tower.main(args=args, prog_name=prog_name, standalone_mode=False)

    console.exit_process(console.run_command_line(call))


def pushd() -> NoReturn:
    """Runs `tower serve` under the push document's name for the daemon."""
    main(["serve", *sys.argv[1:]], prog_name="pushd")


def hostd() -> NoReturn:
    """Runs `tower host` under the relay document's name for a host's daemon."""
    main(["host", *sys.argv[1:]], prog_name="hostd")


def pi_server() -> NoReturn:
    """Runs the pi document's server: a daemon that also serves pi over stdin and stdout."""
    from switchtower.cli.commands import serve

    def call() -> Any:
        return serve.pi_server.main(prog_name="pi-server", standalone_mode=False)

    console.exit_process(console.run_command_line(call))


def tm() -> NoReturn:
    """Runs `tower flow` under REP's name for the orchestrator."""
    from switchtower.cli.commands import flow

    def call() -> Any:
        return flow.flow.main(prog_name="tm", standalone_mode=False, **_SETTINGS)

    console.exit_process(console.run_command_line(call))
