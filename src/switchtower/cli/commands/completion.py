"""`tower completion`: a script that lets a shell complete commands, options, sessions, models and settings."""

import click

from switchtower.cli import console, output

SHELLS = ("bash", "zsh", "fish")
PROGRAMS = ("tower", "push", "tm")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("--program", type=click.Choice(PROGRAMS), default="tower", help="The command to complete: `tower`, `push` or `tm`.")
def completion(shell: str, program: str) -> int:
    """Print the completion script for a shell. Sessions and models are offered when a daemon runs; none is started for it.

    bash (4.4 or newer): put `eval "$(tower completion bash)"` into ~/.bashrc.

    zsh: put `eval "$(tower completion zsh)"` into ~/.zshrc, after `compinit`.

    fish: write it to ~/.config/fish/completions/tower.fish.

    \b
    Example:
      tower completion fish > ~/.config/fish/completions/tower.fish
      eval "$(tower completion bash)"
    """
    from click.shell_completion import BashComplete, ShellComplete, get_completion_class

    from switchtower.cli import main

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    script = kind(main.tower, {}, program, f"_{program.upper()}_COMPLETE")
    # Not bash's own `source`: that asks the bash of this machine for its version, which need not be the one that reads this.
    text = ShellComplete.source(script) if isinstance(script, BashComplete) else script.source()
    output.write(text.encode())
    return console.ExitStatus.OK
