"""`tower config`: shows the effective settings with their sources, and changes the file."""

import os
from typing import TYPE_CHECKING, Any

import click

from switchtower.cli import arguments, console, output, table
from switchtower.settings.sources import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from switchtower.settings.parsers import Setting

_name_argument = click.argument("name", metavar="NAME", callback=arguments.validate_sendable)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print one object.")


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
        output.write_line(ctx.get_help())


@config.command()
@_json_option
def path(as_json: bool) -> int:
    """Print where the configuration file is, whether or not it is there yet.

    \b
    Example:
      cat "$(tower config path)"
    """
    from switchtower.cli.configuration import sources

    file = sources.locate_config_file()
    _print({"path": str(file), "exists": file.exists()} if as_json else str(file), as_json=as_json)
    return console.ExitStatus.OK


@config.command()
@click.option("--json", "as_json", is_flag=True, help="Print one array: name, value, source, place, default.")
def show(as_json: bool) -> int:
    """List every setting with its value and where that comes from: the default, the file or a variable. Secrets are hidden.

    \b
    Example:
      tower config show
      tower config show --json | jq '.[] | select(.source != "default")'
    """
    from switchtower import config as settings_config
    from switchtower.cli.configuration import sources

    shown = sources.list_settings(settings_config.load())
    if as_json:
        _print(shown, as_json=True)
        return console.ExitStatus.OK
    cells = [(one.name, one.place or one.source, sources.format_value(one.value) or "-") for one in shown]
    for row in table.format_rows(cells):
        output.write_line(console.escape_unprintable(row))
    return console.ExitStatus.OK


@config.command()
@_name_argument
@click.option("--json", "as_json", is_flag=True, help="Print the value as JSON.")
def get(name: str, as_json: bool) -> int:
    """Print the value of one setting that is in force. An empty line: it has none.

    \b
    Example:
      tower config get http
    """
    from switchtower import config as settings_config
    from switchtower.cli.configuration import sources

    setting = _find_known_setting(name)
    value = getattr(settings_config.load(), setting.name)
    _print(sources.to_plain_value(value) if as_json else sources.format_value(value), as_json=as_json)
    return console.ExitStatus.OK


@config.command("set", context_settings={"ignore_unknown_options": True})  # a value may start with a dash
@_name_argument
@click.argument("value", metavar="VALUE", callback=arguments.validate_sendable)
def set_setting(name: str, value: str) -> int:
    """Give a setting a value in the file. It is checked as at a start; comments and the order of the file stay.

    \b
    Example:
      tower config set log_level debug
      tower config set http 127.0.0.1:9000
      tower config set pass_env GITHUB_TOKEN,NPM_TOKEN
    """
    from switchtower.cli.configuration import config_file, sources

    setting, file = _find_file_setting(name), sources.locate_config_file()
    try:
        parsed = setting.parse(value)
    except ValueError as problem:
        raise ConfigError(setting.name, "the command line", str(problem), hint=setting.remedy) from None
    _apply_change(file, lambda: config_file.set_value(file, setting, parsed))
    hidden = setting.name in sources.SECRET_SETTINGS
    console.print_line(f"`{setting.name}` is {'set' if hidden else f'`{sources.format_value(parsed)}`'} in {file}")
    _warn_about_variable(setting)
    return console.ExitStatus.OK


@config.command()
@_name_argument
def unset(name: str) -> int:
    """Take a setting out of the file, so that its default holds again. It is no mistake when it was not there.

    \b
    Example:
      tower config unset log_level
    """
    from switchtower.cli.configuration import config_file, sources

    file = sources.locate_config_file()
    found = _apply_change(file, lambda: config_file.unset_value(file, name))
    if not found:
        _find_file_setting(name)  # an unknown name is a mistake, unless it was in the file
        console.print_line(f"`{name}` is not in {file}")
        return console.ExitStatus.OK
    console.print_line(f"`{name}` is no longer in {file}")
    if (setting := sources.find_setting(name)) is not None:
        _warn_about_variable(setting)
    return console.ExitStatus.OK


@config.command()
def edit() -> int:
    """Open the file in your editor (`VISUAL` or `EDITOR`). What could not be started with is not written, and kept for you.

    \b
    Example:
      EDITOR=nano tower config edit
    """
    from switchtower.cli.configuration import config_file, sources

    file = sources.locate_config_file()
    try:
        changed = config_file.edit_in_editor(file)
    except config_file.EditRejected as problem:
        raise click.ClickException(str(problem)) from None
    except OSError as problem:
        raise _make_write_error(file, problem) from None
    if changed:
        console.print_line(f"{file} is written")
        _print_restart_hint()
    else:
        console.print_line("nothing was changed")
    return console.ExitStatus.OK


def _print(value: Any, *, as_json: bool) -> None:
    if as_json:
        import msgspec

        output.write_line(msgspec.json.encode(value))
    else:
        output.write_line(value)


def _find_known_setting(name: str) -> "Setting":
    from difflib import get_close_matches

    from switchtower import config as settings_config
    from switchtower.cli.configuration import sources

    setting = sources.find_setting(name.replace("-", "_"))
    if setting is None:
        near = get_close_matches(name.replace("-", "_").lower(), [known.name for known in settings_config.SETTINGS], n=1)
        hint = f"did you mean `{near[0]}`?" if near else "see `tower config show`"
        raise click.ClickException(f"there is no setting `{name}`; hint: {hint}")
    return setting


def _find_file_setting(name: str) -> "Setting":
    setting = _find_known_setting(name)
    if not setting.in_file:
        raise click.ClickException(
            f"`{name}` cannot be in the file; hint: set `{setting.variables[0]}`, the file is found through it"
        )
    return setting


def _apply_change(file: "Path", change: Any) -> Any:
    try:
        return change()
    except OSError as problem:
        raise _make_write_error(file, problem) from None


def _make_write_error(file: "Path", problem: OSError) -> click.ClickException:
    return click.ClickException(f"`{file}` cannot be written: {problem.strerror}; hint: see who owns its folder")


def _warn_about_variable(setting: "Setting") -> None:
    from switchtower.cli.configuration import sources

    if (variable := sources.find_variable(setting, os.environ)) is not None:
        console.print_line(f"`{variable}` is set and goes before the file; hint: unset it", "yellow")
    _print_restart_hint()


def _print_restart_hint() -> None:
    """Prints a hint if the running daemon must be restarted to apply the file."""
    from switchtower import config as settings_config
    from switchtower.client import discovery

    try:
        settings = settings_config.load()
    except ConfigError:
        return  # a variable is invalid, which the next command reports
    if discovery.needs_restart(settings):
        console.print_line("the daemon was started before config.toml changed: run `tower restart`", "yellow")
