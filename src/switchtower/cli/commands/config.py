"""`tower config`: the settings in force, where each comes from, and changes of the file."""

import os
from typing import TYPE_CHECKING, Any

import click

from switchtower.cli import arguments, console, output, table

if TYPE_CHECKING:
    from pathlib import Path

    from switchtower import config as settings_room

_name = click.argument("name", metavar="NAME", callback=arguments.sendable_option)
_as_object = click.option("--json", "as_json", is_flag=True, help="Print one object.")


@click.group(invoke_without_command=True)
@click.pass_context
def config(ctx: click.Context) -> None:
    """See and change the settings. Each is also a `TOWER_*` variable and a flag of `tower serve`, which go before the file.

    A daemon that runs keeps the settings that it was started with: `tower stop` ends it, and the next command starts one anew.

    \b
    Example:
      tower config show
      tower config set policy auto
    """
    if ctx.invoked_subcommand is None:
        output.line(ctx.get_help())


@config.command()
@_as_object
def path(as_json: bool) -> int:
    """Print where the configuration file is, whether or not it is there yet.

    \b
    Example:
      cat "$(tower config path)"
    """
    from switchtower.cli.configuring import sources

    file = sources.file_in_force()
    _print({"path": str(file), "exists": file.exists()} if as_json else str(file), as_json=as_json)
    return console.Exit.OK


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print one array: name, value, source, place, default.")
def show(as_json: bool) -> int:
    """List every setting with its value and where that comes from: the default, the file or a variable. Secrets are hidden.

    \b
    Example:
      tower config show
      tower config show --json | jq '.[] | select(.source != "default")'
    """
    from switchtower import config as settings_room
    from switchtower.cli.configuring import sources

    shown = sources.shown(settings_room.load())
    if as_json:
        _print(shown, as_json=True)
        return console.Exit.OK
    cells = [(one.name, one.place or one.source, sources.spelled(one.value) or "-") for one in shown]
    for row in table.rows(cells):
        output.line(console.printable(row))
    return console.Exit.OK


@config.command()
@_name
@click.option("--json", "as_json", is_flag=True, help="Print the value as JSON.")
def get(name: str, as_json: bool) -> int:
    """Print the value of one setting that is in force. An empty line: it has none.

    \b
    Example:
      tower config get http
    """
    from switchtower import config as settings_room
    from switchtower.cli.configuring import sources

    setting = _known(name)
    value = getattr(settings_room.load(), setting.name)
    _print(sources.plain(value) if as_json else sources.spelled(value), as_json=as_json)
    return console.Exit.OK


@config.command("set", context_settings={"ignore_unknown_options": True})  # a value may begin with a dash
@_name
@click.argument("value", metavar="VALUE", callback=arguments.sendable_option)
def set_(name: str, value: str) -> int:
    """Give a setting a value in the file. It is checked as at a start; comments and the order of the file stay.

    \b
    Example:
      tower config set log_level debug
      tower config set http 127.0.0.1:9000
      tower config set pass_env GITHUB_TOKEN,NPM_TOKEN
    """
    from switchtower import config as settings_room
    from switchtower.cli.configuring import changing, sources

    setting, file = _of_the_file(name), sources.file_in_force()
    try:
        parsed = setting.parse(value)
    except ValueError as problem:
        raise settings_room.ConfigError(setting.name, "the command line", str(problem), hint=setting.remedy) from None
    _changed(file, lambda: changing.set_value(file, setting, parsed))
    hidden = setting.name in sources.HIDDEN
    console.say(f"`{setting.name}` is {'set' if hidden else f'`{sources.spelled(parsed)}`'} in {file}")
    _tell_what_goes_before(setting)
    return console.Exit.OK


@config.command()
@_name
def unset(name: str) -> int:
    """Take a setting out of the file, so that its default holds again. It is no mistake when it was not there.

    \b
    Example:
      tower config unset log_level
    """
    from switchtower.cli.configuring import changing, sources

    file = sources.file_in_force()
    found = _changed(file, lambda: changing.unset(file, name))
    if not found:
        _of_the_file(name)  # a name that is none is a mistake, unless it was in the file
        console.say(f"`{name}` is not in {file}")
        return console.Exit.OK
    console.say(f"`{name}` is no longer in {file}")
    if (setting := sources.known(name)) is not None:
        _tell_what_goes_before(setting)
    return console.Exit.OK


@config.command()
def edit() -> int:
    """Open the file in your editor (`VISUAL` or `EDITOR`). What could not be started with is not written, and kept for you.

    \b
    Example:
      EDITOR=nano tower config edit
    """
    from switchtower.cli.configuring import editing, sources

    file = sources.file_in_force()
    try:
        changed = editing.edit(file)
    except editing.NotTaken as problem:
        raise click.ClickException(str(problem)) from None
    except OSError as problem:
        raise _cannot_write(file, problem) from None
    if changed:
        console.say(f"{file} is written")
        _show_restart()
    else:
        console.say("nothing was changed")
    return console.Exit.OK


def _print(value: Any, *, as_json: bool) -> None:
    if as_json:
        import msgspec

        output.line(msgspec.json.encode(value))
    else:
        output.line(value)


def _known(name: str) -> "settings_room.Setting":
    from difflib import get_close_matches

    from switchtower import config as settings_room
    from switchtower.cli.configuring import sources

    setting = sources.known(name.replace("-", "_"))
    if setting is None:
        near = get_close_matches(name.replace("-", "_").lower(), [known.name for known in settings_room.SETTINGS], n=1)
        hint = f"did you mean `{near[0]}`?" if near else "see `tower config show`"
        raise click.ClickException(f"there is no setting `{name}`; hint: {hint}")
    return setting


def _of_the_file(name: str) -> "settings_room.Setting":
    setting = _known(name)
    if not setting.in_file:
        raise click.ClickException(
            f"`{name}` cannot be in the file; hint: set `{setting.variables[0]}`, the file is found through it"
        )
    return setting


def _changed(file: "Path", change: Any) -> Any:
    try:
        return change()
    except OSError as problem:
        raise _cannot_write(file, problem) from None


def _cannot_write(file: "Path", problem: OSError) -> click.ClickException:
    return click.ClickException(f"`{file}` cannot be written: {problem.strerror}; hint: see who owns its folder")


def _tell_what_goes_before(setting: "settings_room.Setting") -> None:
    from switchtower.cli.configuring import sources

    if (variable := sources.variable_of(setting, os.environ)) is not None:
        console.say(f"`{variable}` is set and goes before the file; hint: unset it", "yellow")
    _show_restart()


def _show_restart() -> None:
    """Whether the running daemon has to be restarted for what the file has now."""
    from switchtower import config as settings_room
    from switchtower.client import discover

    try:
        settings = settings_room.load()
    except settings_room.ConfigError:
        return  # of a variable, which the next command reports
    if discover.needs_restart(settings):
        console.say("the daemon was started before config.toml changed: run `tower restart`", "yellow")
