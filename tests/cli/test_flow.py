"""`tower flow` and `tm` as a user has them: bytes of stdout, stderr and exit codes, with real runtimes."""

import copy
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TowerResult, read_line_with
from tests.cli.test_imports import DAEMON_PACKAGES
from tests.contract_proc.driving import DRIVER_TIMEOUT, IR, RUNTIMES, read_notes

from switchtower import daemon

TM = "from switchtower.cli.main import tm; tm()"
PROBE = """
import sys
from switchtower.cli.main import tm
try:
    tm()
finally:
    print(",".join(sorted(sys.modules)), file=sys.stderr)
"""
HEAVY = {"pydantic", "pydantic_ai", "starlette", "uvicorn", "mcp", "pyte", "yaml", "sqlite3", "httpx", "uvloop"}
YAML = """\
name: greet
inputs:
  who: {type: string, default: you}
steps:
  - {id: say, kind: log, with: {message: $input.who}}
outputs: {greeted: $input.who}
"""
PROJECT = Path(daemon.__file__).parents[3]


class TmProcess:
    """The command with a separate folder and home. The home has a short path: that of a Unix socket in it may not be long."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.notes = folder / "notes"
        self.environment = {**os.environ, "HOME": str(home), "NOTES": str(self.notes)}
        self.remembered = home / ".trace_mind/runtime_capabilities"

    def __call__(self, *arguments: str, stdin: bytes = b"", code: str = TM, **environment: str) -> TowerResult:
        ended = subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],
            input=stdin,
            capture_output=True,
            cwd=self.folder,
            env=self.environment | environment,
            timeout=DRIVER_TIMEOUT,
        )
        return TowerResult(ended.returncode, ended.stdout, ended.stderr.decode())

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-c", TM, *arguments]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, **streams)

    def list_processes(self) -> list[int]:
        """Those that have this one's environment and still live."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"NOTES={self.notes}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def write(self, name: str, content: Any) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return name


@pytest.fixture
def tm_command(tmp_path: Path) -> Iterator[TmProcess]:
    with tempfile.TemporaryDirectory(prefix="tm-", dir="/tmp") as home:
        yield TmProcess(tmp_path, Path(home))


def get_runtime(name: str) -> str:
    return str(RUNTIMES / f"{name}.py")


def make_flow(*nodes: dict[str, Any]) -> dict[str, Any]:
    ir = copy.deepcopy(IR)
    ir["graph"]["nodes"] = list(nodes)
    return ir


def make_settings(**said: str) -> str:
    return "runtime:\n" + "".join(f"  {name}: {value}\n" for name, value in said.items())


def test_an_ir_document_runs_on_our_runtime_where_no_project_says_otherwise(tm_command: TmProcess) -> None:
    ended = tm_command("run", tm_command.write("greet.json", IR))

    assert (ended.code, ended.stdout) == (0, b"")
    lines = ended.stderr.splitlines()
    assert lines[:2] == ["one: started", "one: [info] hello"]
    assert lines[2].startswith("one: succeeded (")
    assert lines[3:] == ["greet: completed, 1 step"]


def test_a_yaml_flow_prints_its_outputs(tm_command: TmProcess) -> None:
    ended = tm_command("run", tm_command.write("greet.yaml", YAML), "--inputs", '{"who": "Ann"}')

    assert (ended.code, ended.stdout) == (0, b'{\n  "greeted": "Ann"\n}\n')
    assert "say: [info] Ann\n" in ended.stderr


@pytest.mark.parametrize("given", ["@inputs.json", "@-"])
def test_inputs_come_from_a_file_or_stdin(tm_command: TmProcess, given: str) -> None:
    tm_command.write("inputs.json", {"who": "Bob"})

    ended = tm_command("run", tm_command.write("greet.yaml", YAML), "--inputs", given, "--json", stdin=b'{"who": "Bob"}')

    assert (ended.code, ended.json["summary"]["outputs"]) == (0, {"greeted": "Bob"})


def test_json_is_one_object_on_one_line_and_progress_stays_on_stderr(tm_command: TmProcess) -> None:
    ended = tm_command("run", tm_command.write("greet.json", IR), "--json")

    assert ended.code == 0
    assert ended.stdout.count(b"\n") == 1
    assert list(ended.json) == ["flow", "status", "summary", "events"]
    assert (ended.json["flow"], ended.json["status"], ended.json["summary"]["completed_steps"]) == ("greet", "completed", 1)
    assert [event["type"] for event in ended.json["events"]] == ["step", "log", "step"]
    assert "one: started\n" in ended.stderr


@pytest.mark.requirement("rep:manifest:command", "rep:manifest:relative")
def test_a_compiled_flow_runs_by_its_name_from_any_folder_below(tm_command: TmProcess) -> None:
    tm_command.write("greet.yaml", YAML)
    assert tm_command("compile", "greet.yaml", "--manifest", "tm/flows/manifest.json").code == 0
    (entry,) = json.loads((tm_command.folder / "tm/flows/manifest.json").read_bytes())
    assert (entry["name"], entry["ir_path"], entry["source_file"]) == ("greet", "greet.json", "greet.yaml")

    listed = tm_command("runtime", "run", "--manifest", "tm/flows/manifest.json", "--flow", "greet", "--inputs", '{"who": "x"}')
    tm_command.folder = tm_command.folder / "tm/flows"
    by_name = tm_command("run", "greet", "--json")

    assert (listed.code, listed.json["summary"]["outputs"]) == (0, {"greeted": "x"})
    assert (by_name.code, by_name.json["summary"]["outputs"]) == (0, {"greeted": "you"})


def test_compiling_again_replaces_the_flow_and_keeps_the_others(tm_command: TmProcess) -> None:
    tm_command.write("greet.yaml", YAML)
    tm_command.write("other.yaml", YAML.replace("greet\n", "other\n", 1))
    for file in ("greet.yaml", "other.yaml", "greet.yaml"):
        assert tm_command("compile", file, "--manifest", "m/manifest.json").code == 0

    assert [entry["name"] for entry in json.loads((tm_command.folder / "m/manifest.json").read_bytes())] == ["greet", "other"]


def test_a_manifest_lists_no_file_outside_of_its_folder(tm_command: TmProcess) -> None:
    ended = tm_command("compile", tm_command.write("greet.yaml", YAML), "-o", "out.json", "--manifest", "m/manifest.json")

    assert (ended.code, ended.stdout) == (2, b"")
    assert "is not beside or below `m/manifest.json`" in ended.stderr
    assert sorted(path.name for path in tm_command.folder.iterdir()) == ["greet.yaml"]


def test_what_is_compiled_to_stdout_or_a_file_can_be_validated_and_run(tm_command: TmProcess) -> None:
    tm_command.write("greet.yaml", YAML)
    printed = tm_command("compile", "greet.yaml")
    assert tm_command("compile", "greet.yaml", "-o", "greet.json").code == 0

    assert printed.json["graph"] == json.loads((tm_command.folder / "greet.json").read_bytes())["graph"]
    assert tm_command("validate", "greet.json", "greet.yaml") == TowerResult(
        0, b"greet.json: valid, flow `greet` with 1 step\ngreet.yaml: valid, flow `greet` with 1 step\n", ""
    )
    assert tm_command("run", "greet.json").code == 0


@pytest.mark.requirement("rep:exits:before-handshake", "rep:ir:messages")
def test_an_invalid_flow_is_refused_with_every_problem_and_no_runtime_is_started(tm_command: TmProcess) -> None:
    broken = make_flow({"id": "a b", "type": "log"}, {"id": "two", "type": ""})
    tm_command.write("broken.json", broken)

    ended = tm_command("run", "broken.json", "--executor-path", get_runtime("good"), "--json")

    assert ended.code == 2
    told = ended.stderr.splitlines()
    assert [line.startswith("tower: node ") for line in told] == [True, True]
    error = ended.json["summary"]["error"]
    assert (ended.json["flow"], ended.json["status"], error["code"]) == ("greet", "failed", 1003)
    assert [f"tower: {problem}" for problem in error["data"]["details"]["problems"]] == told
    assert read_notes(tm_command.notes) == []
    assert tm_command("validate", "broken.json").stderr.splitlines()[:2] == told


def test_a_yaml_problem_has_its_line_and_column(tm_command: TmProcess) -> None:
    ended = tm_command("run", tm_command.write("bad.yaml", "name: x\nsteps:\n  - {id: one, kind: log, wiht: {}}\n"))

    assert ended.code == 2
    assert ended.stderr.startswith("tower: bad.yaml:3:")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere"], "there is no file `nowhere`, and no `tm/flows/manifest.json`"),
        (["./nowhere.json"], "`nowhere.json` cannot be read"),
        (["."], "there is no file `.`"),
        (["rubbish.json"], "is no JSON"),
        (["deep.json"], "nested too deep"),
        (["list.json"], "the document must be an object"),
        (["rubbish.yaml"], "is no UTF-8"),
        (["greet.json", "--inputs", "{"], "what `--inputs` gives is no JSON"),
        (["greet.json", "--inputs", "[]"], "inputs must be an object"),
        (["greet.json", "--inputs", "@nowhere"], "`nowhere` cannot be read"),
        (["greet", "--manifest", "rubbish.json"], "is no manifest"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_used_is_refused_before_any_runtime(tm_command: TmProcess, arguments: list[str], complaint: str) -> None:
    tm_command.write("greet.json", IR)
    tm_command.write("list.json", [])
    tm_command.write("deep.json", "[" * 100_000)
    for name in ("rubbish.json", "rubbish.yaml"):
        (tm_command.folder / name).write_bytes(b"\xff\x00\xfe")

    ended = tm_command("run", *arguments, "--executor-path", get_runtime("good"))

    assert (ended.code, ended.stdout) == (2, b"")
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr
    assert read_notes(tm_command.notes) == []


@pytest.mark.requirement("rep:exits:table")
def test_a_failed_step_ends_with_1_and_says_which(tm_command: TmProcess) -> None:
    fails = make_flow({"id": "look", "type": "file.read", "with": {"path": "nowhere"}})

    ended = tm_command("run", tm_command.write("fails.json", fails), "--json")

    assert ended.code == 1
    assert (ended.json["status"], ended.json["summary"]["error"]["code"]) == ("failed", 2001)
    assert "look: failed" in ended.stderr
    assert "tower: greet failed: step `look`: " in ended.stderr


@pytest.mark.requirement("rep:start:allow-shell")
def test_shell_steps_need_to_be_allowed(tm_command: TmProcess) -> None:
    tm_command.write("shell.json", make_flow({"id": "sh", "type": "shell", "with": {"command": "echo made > made"}}))

    assert tm_command("run", "shell.json").code != 0
    assert not (tm_command.folder / "made").exists()
    assert tm_command("run", "shell.json", "--allow-shell").code == 0
    assert (tm_command.folder / "made").read_text() == "made\n"


@pytest.mark.requirement("rep:environment:no-keys")
def test_a_runtime_sees_the_run_s_variables_and_none_of_our_keys(tm_command: TmProcess) -> None:
    tm_command.write("greet.json", IR)
    show = tm_command.folder / "show"
    show.write_text("#!/bin/sh\nenv > seen\n")
    show.chmod(0o755)

    ended = tm_command("run", "greet.json", "--executor-path", "./show", "--timeout", "7", OPENAI_API_KEY="hush-hush")

    seen = (tm_command.folder / "seen").read_text()
    assert ended.code == 4
    assert "TRACE_MIND_ENGINE_TIMEOUT=7\n" in seen
    assert "TRACE_MIND_ALLOW_SHELL=0\n" in seen
    assert "hush-hush" not in seen


@pytest.mark.requirement("rep:exits:table")
@pytest.mark.parametrize(
    ("name", "code", "cause"),
    [
        ("good", 0, None),
        ("fails_step", 1, None),
        ("bad_capabilities", 3, None),
        ("dies_mid_run", 4, None),
        ("half_a_line", 4, None),
        ("answers_twice", 4, None),
        ("exits_at_once", 4, None),
        ("never_answers", 4, "Timeout"),
    ],
)
def test_whatever_a_foreign_runtime_does_there_is_one_object_and_the_right_code(
    tm_command: TmProcess, name: str, code: int, cause: str | None
) -> None:
    more = ["--timeout", "1"] if cause else []
    said = {"CAPABILITIES": '{"version": "1"}'}

    ended = tm_command("run", tm_command.write("greet.json", IR), "--executor-path", get_runtime(name), "--json", *more, **said)

    assert ended.code == code, ended.stderr
    assert ended.json["status"] == ("completed" if code == 0 else "failed")
    error = ended.json["summary"].get("error", {"data": {}})
    assert error["data"].get("cause") == cause


@pytest.mark.requirement("rep:exits:not-started")
def test_a_runtime_that_is_not_there_ends_with_4(tm_command: TmProcess) -> None:
    ended = tm_command("run", tm_command.write("greet.json", IR), "--executor-path", "./nowhere")

    assert (ended.code, ended.stdout) == (4, b"")
    assert "nowhere" in ended.stderr


@pytest.mark.requirement("rep:negotiation:mismatch", "rep:negotiation:cache", "rep:negotiation:clear")
def test_a_missing_step_kind_ends_with_3_and_is_remembered(tm_command: TmProcess) -> None:
    tm_command.write("odd.json", make_flow({"id": "one", "type": "moon.landing"}))

    ended = tm_command("run", "odd.json", "--executor-path", get_runtime("good"))

    assert ended.code == 3
    assert "does not support the step kind `moon.landing`; hint: " in ended.stderr
    assert json.loads((tm_command.remembered / "proc.json").read_bytes())["version"] == "0.1.0"
    shown = tm_command("runtime", "cache", "show", "--engine", "proc")
    assert (shown.code, shown.json["step_kinds"]) == (0, ["log", "switch", "dsl.emit", "finish"])
    assert tm_command("runtime", "cache", "clear", "--engine", "proc").code == 0
    assert not (tm_command.remembered / "proc.json").exists()
    gone = tm_command("runtime", "cache", "show", "--engine", "proc")
    assert (gone.code, gone.stdout) == (1, b"")
    assert tm_command("runtime", "cache", "clear", "--engine", "../proc").code == 2


@pytest.mark.requirement("rep:control:foreign")
def test_we_direct_a_runtime_that_has_no_control_kinds(tm_command: TmProcess) -> None:
    directed = make_flow(
        {"id": "one", "type": "log", "with": {"do": "hello"}},
        {"id": "tell", "type": "dsl.emit", "with": {"said": "$step.one.said"}},
    )
    directed["graph"]["edges"] = [{"from": "one", "to": "tell", "on": "success"}]

    ended = tm_command("run", tm_command.write("directed.json", directed), "--executor-path", get_runtime("foreign"))

    assert (ended.code, json.loads(ended.stdout)) == (0, {"said": "hello"})


@pytest.mark.requirement("rep:settled:cancelled")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_cancels_the_run_once(tm_command: TmProcess, number: signal.Signals) -> None:
    tm_command.write("nap.json", make_flow({"id": "nap", "type": "sleep", "with": {"seconds": "3600"}}))
    process = tm_command.start("run", "nap.json", "--json")
    read_line_with(process, "nap: started")

    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=DRIVER_TIMEOUT)

    ended = json.loads(stdout)
    assert (ended["status"], ended["summary"]["error"]["data"]["cause"]) == ("failed", "Cancelled")
    assert process.returncode == (1 if 2000 <= ended["summary"]["error"]["code"] <= 2999 else 4)
    assert b"cancelling the run\n" in stderr
    assert b"Traceback" not in stderr
    assert tm_command.list_processes() == []


@pytest.mark.requirement("rep:cancel:again")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["ignores_cancel", "ignores_sigterm"])
def test_a_second_interruption_ends_with_4_and_leaves_no_runtime(
    tm_command: TmProcess, name: str, number: signal.Signals
) -> None:
    process = tm_command.start("run", tm_command.write("greet.json", IR), "--executor-path", get_runtime(name))
    while "Runtime.Poll" not in [note["method"] for note in read_notes(tm_command.notes)]:
        assert process.poll() is None

    process.send_signal(number)
    read_line_with(process, "cancelling the run")
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=DRIVER_TIMEOUT)

    assert (process.returncode, stdout) == (4, b"")
    assert stderr == b"tower: the run was interrupted, and nobody saw how it ended\n"
    assert tm_command.list_processes() == []


def test_a_reader_that_leaves_ends_it_quietly(tm_command: TmProcess) -> None:
    process = tm_command.start("run", tm_command.write("greet.json", IR), "--json")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    stderr = process.stderr.read()
    process.stderr.close()

    assert process.wait(timeout=DRIVER_TIMEOUT) == 141
    assert b"Traceback" not in stderr


@pytest.mark.requirement("rep:project:init", "rep:project:file")
def test_init_binds_a_folder_and_does_so_once(tm_command: TmProcess) -> None:
    place = tm_command.folder / "tm/config/runtime.yaml"
    assert tm_command("init").code == 0
    ours = place.read_bytes()
    tm_command.write("bin/rt.py", (RUNTIMES / "good.py").read_text())
    (tm_command.folder / "bin/rt.py").chmod(0o755)

    again = tm_command("init", "--runtime", "bin/rt.py")

    assert ours == b'runtime:\n  engine: "python"\n  language: "python"\n  plugins_language: "python"\n'
    assert again.code == 2
    assert again.stderr == "tower: there is a tm/config/runtime.yaml already; hint: `--force` writes it again\n"
    assert place.read_bytes() == ours
    assert tm_command("init", "--runtime", "bin/rt.py", "--force").code == 0
    assert b'  engine: "proc"\n' in place.read_bytes()
    assert b'  executor_path: "bin/rt.py"\n' in place.read_bytes()


@pytest.mark.requirement("rep:project:family")
@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--runtime", "nowhere"], 2, "no program that could be started"),
        (["--runtime", "/bin/sh"], 2, "hint: say it with `--language`"),
        (["--language", "a\x1b[0m"], 2, "characters that print"),
        (["--runtime", "/bin/sh", "--language", "rust", "--plugins-language", "c"], 3, "hint: run `tm init` again"),
    ],
)
def test_init_refuses_what_could_not_work(tm_command: TmProcess, arguments: list[str], code: int, complaint: str) -> None:
    ended = tm_command("init", *arguments)

    assert (ended.code, ended.stdout) == (code, b"")
    assert complaint in ended.stderr
    assert list(tm_command.folder.iterdir()) == []


@pytest.mark.requirement("rep:project:one-runtime")
def test_the_project_s_runtime_is_used(tm_command: TmProcess) -> None:
    assert tm_command("init", "--runtime", get_runtime("good")).code == 0
    tm_command.write("greet.json", IR)

    ended = tm_command("run", "greet.json")
    listed = tm_command("runtime", "list", "--json")
    info = tm_command("runtime", "info", "--json")

    assert ended.code == 0
    assert [note["method"] for note in read_notes(tm_command.notes)][:2] == ["Runtime.Capabilities", "Runtime.StartRun"]
    assert [(row["engine"], row["used"], row["remembered"]) for row in listed.json] == [
        ("proc", True, True),
        ("python", False, False),
    ]
    assert (info.code, info.json["engine"], info.json["capabilities"]["version"]) == (0, "proc", "0.1.0")


@pytest.mark.requirement("rep:project:family")
def test_runtime_and_plugins_of_two_families_end_with_3_and_start_nothing(tm_command: TmProcess) -> None:
    said = make_settings(engine="proc", language="rust", plugins_language="c", executor_path=get_runtime("good"))
    tm_command.write("tm/config/runtime.yaml", said)

    ended = tm_command("run", tm_command.write("greet.json", IR), "--json")

    assert (ended.code, ended.json["summary"]["error"]["code"], ended.json["flow"]) == (3, 1000, "greet")
    assert "hint: run `tm init` again" in ended.stderr
    assert read_notes(tm_command.notes) == []


@pytest.mark.requirement("rep:project:family-warning")
def test_validate_and_compile_warn_of_runtime_and_plugins_of_two_families(tm_command: TmProcess) -> None:
    tm_command.write(
        "tm/config/runtime.yaml", make_settings(engine="proc", language="rust", plugins_language="c", executor_path="/bin/true")
    )
    tm_command.write("greet.yaml", YAML)
    warning = (
        "warning: the runtime is of the language `rust` and the plugins are of `c`; "
        "hint: run `tm init` again with the runtime that fits the plugins\n"
    )

    validated, compiled = tm_command("validate", "greet.yaml"), tm_command("compile", "greet.yaml")

    assert validated == TowerResult(0, b"greet.yaml: valid, flow `greet` with 1 step\n", warning)
    assert (compiled.code, compiled.stderr, compiled.json["flow"]["name"]) == (0, warning, "greet")


@pytest.mark.requirement("rep:ir:validate-kinds")
def test_validate_knows_the_kinds_of_our_runtime_and_leaves_those_of_others_to_them(tm_command: TmProcess) -> None:
    tm_command.write("greet.yaml", YAML.replace("kind: log", "kind: lgo"))

    ended = tm_command("validate", "greet.yaml")

    assert (ended.code, ended.stdout) == (2, b"")
    assert "there is no step kind `lgo` here; hint: `log`?" in ended.stderr
    tm_command.write(
        "tm/config/runtime.yaml",
        make_settings(engine="proc", language="rust", plugins_language="rust", executor_path="/bin/true"),
    )
    assert tm_command("validate", "greet.yaml").code == 0


def test_info_tells_what_our_runtime_can_do(tm_command: TmProcess) -> None:
    ended = tm_command("runtime", "info")

    assert ended.code == 0
    assert b"engine:     python\n" in ended.stdout
    assert b"http.get\n" in ended.stdout


@pytest.mark.parametrize(("name", "code"), [("exits_at_once", 4), ("never_answers", 4), ("cannot_parse", 4)])
def test_info_of_a_runtime_that_does_not_answer_says_so(tm_command: TmProcess, name: str, code: int) -> None:
    ended = tm_command("runtime", "info", "--executor-path", get_runtime(name), "--timeout", "1")

    assert (ended.code, ended.stdout) == (code, b"")
    assert ended.stderr.startswith("tower: the runtime ")


@pytest.mark.requirement("rep:runtime:command")
@pytest.mark.parametrize("arguments", [["runtime"], ["runtime", "serve"], ["runtime", "--stdio"]])
def test_the_command_is_a_runtime_too(tm_command: TmProcess, arguments: list[str]) -> None:
    asked = b'{"jsonrpc":"2.0","id":1,"method":"Runtime.Health","params":{}}\n'

    ended = tm_command(*arguments, stdin=asked)

    assert ended == TowerResult(0, b'{"jsonrpc":"2.0","id":1,"result":{"ok":true,"details":{}}}\n', "")


def test_the_command_as_a_runtime_runs_a_flow_of_the_command(tm_command: TmProcess) -> None:
    executor = tm_command.folder / "rt"
    executor.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m switchtower flow runtime\n")
    executor.chmod(0o755)

    ended = tm_command("run", tm_command.write("greet.yaml", YAML), "--executor-path", "./rt")

    assert (ended.code, json.loads(ended.stdout)) == (0, {"greeted": "you"})


@pytest.mark.requirement("rep:events:terminal")
def test_what_a_runtime_says_does_not_steer_the_terminal(tm_command: TmProcess) -> None:
    tm_command.write("loud.json", make_flow({"id": "one", "type": "log", "with": {"message": "\x1b]0;owned\x07a\nb: succeeded"}}))

    ended = tm_command("run", "loud.json")

    assert "one: [info] \\x1b]0;owned\\x07a b: succeeded\n" in ended.stderr


def test_a_wrong_command_line_has_a_code_that_no_run_has(tm_command: TmProcess) -> None:
    assert tm_command("run").code == 64
    assert tm_command("run", "x", "--timeout", "nan").code == 64
    assert tm_command("fly").code == 64


def list_loaded(ended: TowerResult) -> set[str]:
    return set(ended.stderr.splitlines()[-1].split(","))


@pytest.mark.requirement("rep:faults:imports")
@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["runtime", "--help"], []])
def test_help_loads_none_of_the_rooms_that_do_the_work(tm_command: TmProcess, arguments: list[str]) -> None:
    ended = tm_command(*arguments, code=PROBE)

    assert ended.code == 0
    assert b"Example:" in ended.stdout
    assert list_loaded(ended).isdisjoint(HEAVY | {"asyncio", "msgspec", "subprocess", "switchtower.config"})
    assert not {name for name in list_loaded(ended) if name.startswith((*DAEMON_PACKAGES, "switchtower.engines"))}


@pytest.mark.requirement("rep:faults:imports")
def test_a_run_of_an_ir_document_loads_no_heavy_library(tm_command: TmProcess) -> None:
    ended = tm_command("run", tm_command.write("greet.json", IR), code=PROBE)

    assert ended.code == 0
    assert list_loaded(ended).isdisjoint(HEAVY | {"tempfile"})
    assert "switchtower.engines.flow.runtime.executor" not in list_loaded(ended)


def test_being_the_runtime_loads_no_orchestrator(tm_command: TmProcess) -> None:
    ended = tm_command("runtime", "serve", code=PROBE)

    assert list_loaded(ended).isdisjoint(HEAVY | {"asyncio"})
    assert "switchtower.protocols.rep.driver" not in list_loaded(ended)


def test_tm_is_installed() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())

    assert project["project"]["scripts"]["tm"] == "switchtower.cli.main:tm"
