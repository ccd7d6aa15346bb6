"""`tower flow`, also installed as `tm`: flows and their runtimes.

This module only parses the command line; `cli/flows` does the work and is loaded when a command is called.
"""

import os
from pathlib import Path

import click

from switchtower.cli import arguments, console, output

_PATH = click.Path(path_type=Path)
_inputs_option = click.option(
    "--inputs", metavar="JSON|@FILE", help="What the flow is given: a JSON object, a file of it, or @- for stdin."
)
_executor_option = click.option(
    "--executor-path", metavar="PATH", help="Another runtime than the project's, to look into something."
)
_timeout_option = arguments.amount_option("--timeout", "SECONDS", "The engine timeout; 120 by default.", maximum=10**7)
_shell_option = click.option("--allow-shell", is_flag=True, help="Let `shell` steps run.")
_engine_option = click.option("--engine", required=True, metavar="NAME", help="The engine, as `runtime list` has it.")
_json_option = click.option("--json", "as_json", is_flag=True, help="Print one object.")


@click.group(invoke_without_command=True)
@click.pass_context
def flow(ctx: click.Context) -> None:
    """Run flows on a runtime, check and compile them, and look at runtimes. `tm` is short for `tower flow`.

    A flow is a YAML file, a Flow IR document, or a name in the project's manifest. Exit codes: 0 completed, 1 a step failed,
    2 not valid and nothing was started, 3 refused as not valid by or for the runtime, 4 the runtime broke or took too long.

    \b
    Example:
      tower flow init
      tower flow run weather.yaml --inputs '{"city": "Bern"}'
      tm run weather --json
    """
    if ctx.invoked_subcommand is None:
        output.write_line(ctx.get_help())


@flow.command(short_help="Bind this folder to a runtime")
@click.option("--runtime", default="python", metavar="python|PATH", help="`python` is the one that comes with us (default).")
@click.option("--language", metavar="NAME", help="What the runtime is written in, such as `rust`.")
@click.option("--plugins-language", metavar="NAME", help="What its plugins are written in; the same by default.")
@click.option("--force", is_flag=True, help="Write the file again when there is one.")
def init(runtime: str, language: str | None, plugins_language: str | None, force: bool) -> int:
    """Bind this folder to a runtime: write `tm/config/runtime.yaml`.

    \b
    Example:
      tm init
      tm init --runtime bin/runtime --language rust
    """
    from switchtower.cli.flows import runtimes

    return runtimes.init_project(runtime, language, plugins_language, force=force)


@flow.command(short_help="Run a flow and wait for its outcome")
@click.argument("flow", metavar="FLOW")
@_inputs_option
@click.option("--manifest", type=_PATH, metavar="FILE", help="FLOW is a name in it; `tm/flows/manifest.json` by default.")
@_executor_option
@_timeout_option
@_shell_option
@click.option("--json", "as_json", is_flag=True, help="Print one object: flow, status, summary, events.")
@click.option("--local", is_flag=True, help="Run it here, and not as a session of the daemon.")
@click.option("--detach", is_flag=True, help="Print the session's id and do not wait for its end.")
def run(
    flow: str,
    inputs: str | None,
    manifest: Path | None,
    executor_path: str | None,
    timeout: float | None,
    allow_shell: bool,
    as_json: bool,
    local: bool,
    detach: bool,
) -> int:
    """Run FLOW: a YAML flow, an IR document, or a name in the manifest; `-` reads one from stdin. Progress is on stderr; Ctrl-C
    cancels the run.

    Where a daemon runs, the flow is a session of it, which any client can watch, decide in and cancel. A flow with `approval`
    or `agent.run` steps starts a daemon when none runs.

    \b
    Example:
      tm run weather.yaml --inputs '{"city": "Bern"}'
      tm run build/weather.json --inputs @inputs.json --timeout 30
      tm run weather --json | jq .summary.outputs
    """
    from switchtower.cli.flows import flow_run

    return flow_run.run_flow(
        flow_run.FlowRunOptions(
            flow=flow,
            manifest=manifest,
            inputs=inputs,
            executor=executor_path,
            timeout_s=timeout,
            allow_shell=allow_shell,
            as_json=as_json,
            local=local,
            detach=detach,
        )
    )


@flow.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_PATH)
def validate(files: tuple[Path, ...]) -> int:
    """Check flows, YAML or IR, and report every problem at once. Nothing is started.

    A step kind that the runtime of this folder does not have is a problem too, when that runtime is the one that comes with us.

    \b
    Example:
      tm validate flows/*.yaml
    """
    from switchtower.cli.flows import runtimes

    return runtimes.validate_flows(files)


@flow.command(short_help="List the step kinds and what each takes")
@click.argument("names", metavar="KIND...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
def kinds(names: tuple[str, ...], as_json: bool) -> int:
    """List the step kinds of the runtime that comes with us, those of installed plugins too. With KIND, show its inputs and
    outputs.

    \b
    Example:
      tm kinds
      tm kinds http.get shell
    """
    from switchtower.cli.flows import runtimes

    return runtimes.print_kinds(names, as_json=as_json)


@flow.command("compile")
@click.argument("file", metavar="FILE", type=_PATH)
@click.option("-o", "--out", type=_PATH, metavar="OUT", help="Where to write the IR; stdout without it.")
@click.option("--manifest", type=_PATH, metavar="FILE", help="List the flow in this manifest, and write the IR beside it.")
def compile_flow(file: Path, out: Path | None, manifest: Path | None) -> int:
    """Make Flow IR of a YAML flow.

    \b
    Example:
      tm compile weather.yaml -o weather.json
      tm compile weather.yaml --manifest tm/flows/manifest.json
    """
    from switchtower.cli.flows import runtimes

    return runtimes.compile_flow(file, out, manifest)


@flow.group(invoke_without_command=True, short_help="Look at runtimes, or be one")
@click.option("--stdio", is_flag=True, help="Be the runtime, even on a terminal.")
@click.pass_context
def runtime(ctx: click.Context, stdio: bool) -> None:
    """Look at runtimes, or be one: without a command and with a pipe for stdin, this is a runtime that speaks REP.

    \b
    Example:
      tm runtime info
      tm runtime run --manifest tm/flows/manifest.json --flow weather
    """
    if ctx.invoked_subcommand is not None:
        return
    if not stdio and os.isatty(0):
        output.write_line(ctx.get_help())
        return
    _serve_runtime()


@runtime.command(hidden=True)
def serve() -> None:
    """Be a runtime: REP on stdin and stdout, until stdin ends.

    \b
    Example:
      tm runtime serve
    """
    _serve_runtime()


def _serve_runtime() -> None:
    from switchtower.flows import rep_runtime

    try:
        rep_runtime.main()
    except OSError:
        console.print_error("stdin or stdout is not open", "connect both, as an orchestrator does")
        raise SystemExit(4) from None


@runtime.command("run")
@click.option("--manifest", type=_PATH, required=True, metavar="FILE", help="The manifest that has the flow.")
@click.option("--flow", required=True, metavar="NAME", help="The flow's name in it.")
@_inputs_option
@_executor_option
@_timeout_option
@_shell_option
def run_from_manifest(
    manifest: Path, flow: str, inputs: str | None, executor_path: str | None, timeout: float | None, allow_shell: bool
) -> int:
    """Run a flow of a manifest and print one object: flow, status, summary, events.

    \b
    Example:
      tm runtime run --manifest tm/flows/manifest.json --flow weather --inputs @inputs.json
    """
    from switchtower.cli.flows import flow_run

    return flow_run.run_flow(
        flow_run.FlowRunOptions(
            flow=flow,
            manifest=manifest,
            inputs=inputs,
            executor=executor_path,
            timeout_s=timeout,
            allow_shell=allow_shell,
            as_json=True,
        )
    )


@runtime.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one array.")
def list_runtimes(as_json: bool) -> int:
    """List runtimes: the one used here, the one that comes with us, and those that were asked before.

    \b
    Example:
      tm runtime list
    """
    from switchtower.cli.flows import runtimes

    return runtimes.list_runtimes(as_json=as_json)


@runtime.command()
@_executor_option
@arguments.amount_option("--timeout", "SECONDS", "How long it may take to answer; 10 by default.", maximum=10**7)
@_json_option
def info(executor_path: str | None, timeout: float | None, as_json: bool) -> int:
    """Start the runtime that is used here and print what it says of itself.

    \b
    Example:
      tm runtime info
      tm runtime info --executor-path bin/runtime --json
    """
    from switchtower.cli.flows import runtimes

    return runtimes.print_runtime_info(executor_path, timeout, as_json=as_json)


@runtime.group(invoke_without_command=True)
@click.pass_context
def cache(ctx: click.Context) -> None:
    """See or forget what runtimes said of themselves.

    \b
    Example:
      tm runtime cache show --engine proc
    """
    if ctx.invoked_subcommand is None:
        output.write_line(ctx.get_help())


@cache.command()
@_engine_option
def show(engine: str) -> int:
    """Print what a runtime last said it can do.

    \b
    Example:
      tm runtime cache show --engine proc
    """
    from switchtower.cli.flows import runtimes

    return runtimes.show_cached_capabilities(engine)


@cache.command()
@_engine_option
def clear(engine: str) -> int:
    """Forget what a runtime said it can do.

    \b
    Example:
      tm runtime cache clear --engine proc
    """
    from switchtower.cli.flows import runtimes

    return runtimes.clear_cached_capabilities(engine)
