"""Session steps for a runtime that another orchestrator drives: a step that needs a session becomes a flow of that one step, a
session of this machine's daemon, through `tower flow run`. The orchestrator sees an ordinary step.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any

from switchtower.engines.flow.runtime import event_buffer, failures
from switchtower.engines.flow.runtime.kinds import port

_MAX_WAIT = 366 * 24 * 3600.0
_MAX_ANSWER_BYTES = 16 * 1024 * 1024
_MAX_ERROR_LENGTH = 2_000


class CommandSessionSteps:
    """Implements `port.SessionSteps`."""

    async def run_step(self, kind: str, given: Mapping[str, Any], context: port.StepContext) -> Mapping[str, Any]:
        import json
        import tempfile

        from switchtower import config
        from switchtower.tools.processes import commands

        if not config.load().socket.exists():
            # A daemon that is started here would be part of this run, and end with it.
            raise failures.StepFailed("no daemon runs that could do it; hint: start one with `tower serve`")
        with tempfile.TemporaryDirectory(prefix="tower-step-") as folder:
            flow = _write_json(folder, "flow.json", _make_single_step_flow(kind, given, context))
            inputs = _write_json(folder, "inputs.json", {"given": given})
            # -P: a `json.py` in the run's folder must not be imported.
            tower = [sys.executable, "-P", "-m", "switchtower"]
            command = [*tower, "flow", "run", flow, "--inputs", f"@{inputs}", "--json"]
            ended = await commands.run_command(
                command,
                cwd=context.setting.workspace,
                run_id=context.setting.run_id,
                timeout_s=_MAX_WAIT,
                keep_bytes=_MAX_ANSWER_BYTES,
                environment=dict(os.environ),
                errors_apart=True,
                is_client=True,
            )
        try:
            told = json.loads(ended.output)
            status, summary = told["status"], told["summary"]
        except (ValueError, KeyError, TypeError):
            raise failures.StepFailed(f"the tower gave no answer: {ended.errors[-_MAX_ERROR_LENGTH:].strip()}") from None
        if status == "completed":
            outputs: Mapping[str, Any] = summary["outputs"]["given"]
            return outputs
        error = summary["error"]
        data = error.get("data") or {}
        raise failures.StepFailed(error["message"], retriable=data.get("retriable") is True, details=data.get("details"))


def _write_json(folder: str, name: str, value: Any) -> str:
    path = f"{folder}/{name}"
    with open(path, "wb") as file:  # noqa: PTH123 - pathlib takes longer to load than this to write
        file.write(event_buffer.encode_json(value))
    return path


def _make_single_step_flow(kind: str, given: Mapping[str, Any], context: port.StepContext) -> dict[str, Any]:
    """Makes a flow of the step, with the step's outputs as its own. The arguments are an input, so that none of their text is
    taken for a reference."""
    names = {name: f"$input.given.{name}" for name in given if "." not in name}
    return {
        "version": "1.0.0",
        "flow": {"name": context.step_id, "timeout_ms": 0},
        "constants": {"policyRef": "default", "policy": {}},
        "inputs_schema": {"given": {"type": "object"}},
        "graph": {
            "nodes": [
                {"id": context.step_id, "type": kind, "with": names},
                {"id": f"{context.step_id}.out", "type": "dsl.emit", "with": {"given": f"$step.{context.step_id}"}},
            ],
            "edges": [{"from": context.step_id, "to": f"{context.step_id}.out", "on": "success"}],
        },
        "metadata": {"generated_at": event_buffer.format_now(), "source_file": "a step of a flow"},
    }
