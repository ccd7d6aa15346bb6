"""People's own commands at work: started by their event, ended whatever happens."""

import asyncio

from tests.runtime.parts import SESSION, SUCCESS, MakeRuntime, RuntimeHarness, finish_at_once, start_session

from switchtower.core import commands, events
from switchtower.core.ports import engine, host_services
from switchtower.testing.session_driver import OWNER


def make_shell_command(command: str = "make test", shell_id: str = "sh_1", *, told: bool = True) -> commands.RunShell:
    return commands.RunShell(session_id=SESSION, actor=OWNER, shell_id=shell_id, command=command, told=told)


class SlowShell:
    """A shell that ends when it is told to, or when it is cancelled."""

    def __init__(self, runtime_harness: RuntimeHarness) -> None:
        self.began = asyncio.Event()
        self.release = asyncio.Event()
        runtime_harness.workshop.shell = self._run

    async def _run(self, command: str) -> host_services.ShellResult:
        self.began.set()
        await self.release.wait()
        return host_services.ShellResult(3, "out")


async def test_what_a_command_put_out_is_journalled_and_told_with_the_next_message(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(finish_at_once)
    outlet = await house.start_session()

    await house.ask(make_shell_command())
    finished = await outlet.wait_for_event(events.ShellFinished)
    await house.send("and now?")
    await house.engine.wait_until(lambda: bool(house.engine.tasks))

    assert (finished.exit_code, finished.text, finished.cancelled) == (0, "ran make test", False)
    mine, asked = house.engine.tasks[0].messages
    assert "make test" in mine.text
    assert "exit code 0" in mine.text
    assert "ran make test" in mine.text
    assert asked.text == "and now?"


async def test_what_is_kept_from_the_model_is_not_told(make_runtime: MakeRuntime) -> None:
    house = await make_runtime(finish_at_once)
    outlet = await house.start_session()

    await house.ask(make_shell_command(told=False))
    await outlet.wait_for_event(events.ShellFinished)
    await house.send("and now?")
    await house.engine.wait_until(lambda: bool(house.engine.tasks))

    assert [message.text for message in house.engine.tasks[0].messages] == ["and now?"]


async def test_a_cancelled_command_ends_as_cancelled(make_runtime: MakeRuntime) -> None:
    house = await make_runtime()
    outlet = await house.start_session()
    slow = SlowShell(house)

    await house.ask(make_shell_command())
    await slow.began.wait()
    await house.ask(commands.CancelShell(session_id=SESSION, actor=OWNER))

    finished = await outlet.wait_for_event(events.ShellFinished)
    assert (finished.cancelled, finished.exit_code) == (True, None)


async def test_a_command_that_runs_while_the_daemon_is_killed_is_closed_by_the_next_one(make_runtime: MakeRuntime) -> None:
    house = await make_runtime()
    await house.start_session()
    await house.ask(commands.LoadSession(session_id=SESSION, actor=OWNER))
    slow = SlowShell(house)
    await house.ask(make_shell_command())
    await slow.began.wait()
    await house.crash()

    again = await make_runtime(journal_=house.journal.inner)

    session = await again.runtime.get_session(SESSION)
    assert session.shells == {}
    assert "sh_1" in again.killed


async def test_a_conversation_of_elsewhere_is_what_the_engine_is_told(make_runtime: MakeRuntime) -> None:
    async def work(task: engine.Task, desk: engine.RunContext) -> engine.RunResult:
        return SUCCESS

    house = await make_runtime(work)
    start = start_session(SESSION)
    await house.ask(start)
    imported = (events.MessageImported("user", "earlier", 1), events.MessageImported("assistant", "yes", 2))
    await house.ask(commands.ReplaceConversation(session_id=SESSION, actor=OWNER, conversation=imported))

    await house.send("go on")
    await house.engine.wait_until(lambda: bool(house.engine.tasks))

    assert [(message.role, message.text) for message in house.engine.tasks[0].messages] == [
        ("user", "earlier"),
        ("assistant", "yes"),
        ("user", "go on"),
    ]
