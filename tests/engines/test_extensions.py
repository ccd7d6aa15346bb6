"""Slash commands that are programs, run by the agent: plugins as they are installed, the demo model, a recording desk."""

import asyncio
from pathlib import Path

import pytest
from tests.engines.parts import MakeAgent, MakeDesk, MakeTask, ScriptedModel
from tests.extensions.parts import GREET, install_into

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.engines.agent.prompts.system_prompt import PromptCatalog
from switchtower.models import port

COMMAND = """
    import asyncio
    from switchtower.extensions import port

    async def run(ctx, arguments):
        {body}

    EXTENSION = port.Extension("tryout", "Tries something", (port.ExtensionCommand("tryout", "Tries something", run),))
"""


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that plugins are installed into."""
    folder = tmp_path_factory.mktemp("site")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def install(site: Path, body: str) -> None:
    install_into(site, COMMAND.format(body=body.replace("\n", "\n        ")), name="tryout")


async def test_the_text_of_a_command_is_the_prompt_of_the_run(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, site: Path
) -> None:
    install_into(site, GREET)
    desk = make_run_context()

    result = await agent().run(make_task("/greet  big world"), desk)

    assert result == engine.RunResult(events.Outcome.SUCCESS, "hello big world")
    assert desk.list_events(events.PromptExpanded) == [events.PromptExpanded("say: hello big world", ("extension:greet",))]
    assert desk.outline == ["PromptExpanded", "MessageCompleted"]


async def test_a_command_that_returns_nothing_ends_the_run_without_the_model(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, site: Path
) -> None:
    install(site, "await ctx.notify(f'{ctx.session_id} in {ctx.workspace}')")
    model, desk = ScriptedModel(), make_run_context()

    task = make_task("/tryout")
    result = await agent(model).run(task, desk)

    assert result == engine.RunResult(events.Outcome.SUCCESS, f"sess_1 in {task.workspace.root}")
    assert model.requests == []
    assert events.PhaseChanged("/tryout", f"sess_1 in {task.workspace.root}") in desk.log
    assert desk.outline == []


async def test_what_it_asks_is_a_dialog_and_the_answer_goes_into_the_prompt(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, site: Path
) -> None:
    install(site, "return 'say: ' + await ctx.ui.select('Which?', ['red', 'green'], timeout=5)")
    desk = make_run_context(dialogs=[engine.DialogAnswer({"value": "green"})])

    result = await agent(now_ms=lambda: 1_000).run(make_task("/tryout"), desk)

    assert result.summary == "green"
    assert desk.dialogs == [events.Dialog("", "select", "Which?", 6_000, options=("red", "green"))]


async def test_the_configured_time_holds_for_dialogs_that_name_none(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, site: Path
) -> None:
    install(site, "return 'say: ' + await ctx.ui.input('Name?')")
    desk = make_run_context(dialogs=[engine.DialogAnswer({"value": "Ada"})])

    await agent(now_ms=lambda: 1_000, dialog_timeout=2.0).run(make_task("/tryout"), desk)

    assert desk.dialogs[0].expires_at_ms == 3_000


@pytest.mark.parametrize(
    ("answer", "headless", "outcome", "summary"),
    [
        (engine.DialogAnswer(None, "dismissed"), False, "cancelled", "`/tryout` was given up: “Name?” was dismissed"),
        (
            engine.DialogAnswer(None, "expired"),
            False,
            "failed",
            "`/tryout` cannot go on: “Name?” was not answered: nobody did within 60 s",
        ),
        (
            engine.DialogAnswer({"value": "unheard"}),
            True,
            "failed",
            "`/tryout` cannot go on: “Name?” cannot be asked: nobody is there to answer in a headless session",
        ),
    ],
)
async def test_a_dialog_without_an_answer_ends_a_run_that_does_not_mind_it(
    make_task: MakeTask,
    make_run_context: MakeDesk,
    agent: MakeAgent,
    site: Path,
    answer: engine.DialogAnswer,
    headless: bool,
    outcome: str,
    summary: str,
) -> None:
    install(site, "return await ctx.ui.input('Name?')")
    model, desk = ScriptedModel(), make_run_context(dialogs=[answer])

    result = await agent(model).run(make_task("/tryout", headless=headless), desk)

    assert result == engine.RunResult(events.Outcome(outcome), summary)
    assert [error.code for error in desk.list_events(events.ErrorRaised)] == (["EXTENSION_FAILED"] if outcome == "failed" else [])
    assert model.requests == []


async def test_an_extension_may_go_on_without_an_answer(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, site: Path
) -> None:
    install(site, "try:\n    return await ctx.ui.input('Name?')\nexcept port.DialogFailed:\n    return 'say: alone'")

    result = await agent().run(make_task("/tryout", headless=True), make_run_context())

    assert result == engine.RunResult(events.Outcome.SUCCESS, "alone")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('no\\nluck')", "`/tryout` failed (ValueError: no luck)"),
        ("raise port.ExtensionError('there is nothing to do')", "`/tryout` cannot go on: there is nothing to do"),
        ("raise SystemExit(3)", "`/tryout` failed (SystemExit: 3)"),
        ("raise asyncio.CancelledError", "`/tryout` cannot go on: it gave up"),
        ("return 7", "`/tryout` failed: what it returned is not a prompt of 1 to 1048576 characters"),
        ("return '  '", "`/tryout` failed: what it returned is not a prompt of 1 to 1048576 characters"),
        ("return 'x' * 1048577", "`/tryout` failed: what it returned is not a prompt of 1 to 1048576 characters"),
        (
            "await ctx.ui.select('Which?', [])",
            "`/tryout` failed (ValueError: a select has 1 to 200 options, all of them different)",
        ),
    ],
)
async def test_an_extension_that_goes_wrong_ends_its_run_as_failed_and_says_why(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, site: Path, body: str, message: str
) -> None:
    install(site, body)
    model, desk = ScriptedModel(), make_run_context()

    result = await agent(model).run(make_task("/tryout"), desk)

    assert result == engine.RunResult(events.Outcome.FAILED, message)
    assert desk.list_events(events.ErrorRaised) == [events.ErrorRaised("EXTENSION_FAILED", message)]
    assert model.requests == []


async def test_a_cancelled_run_cancels_its_extension(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, site: Path, tmp_path: Path
) -> None:
    body = """from pathlib import Path
try:
    await ctx.ui.input('Name?')
except asyncio.CancelledError:
    Path(ctx.workspace, 'cancelled').touch()
    raise"""
    install(site, body)
    desk = make_run_context()
    running = asyncio.create_task(agent().run(make_task("/tryout"), desk))

    await desk.wait_until(lambda desk: desk.dialogs)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert (tmp_path / "cancelled").exists()


async def test_an_extension_that_will_not_stop_is_left_behind(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    body = """try:
    await ctx.notify('here I stay')
    await asyncio.Event().wait()
except asyncio.CancelledError:
    await asyncio.Event().wait()"""
    install(site, body)
    desk = make_run_context()
    running = asyncio.create_task(agent().run(make_task("/tryout"), desk))

    await desk.wait_until(lambda desk: events.PhaseChanged("/tryout", "here I stay") in desk.log)
    running.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await running

    assert "the extension tryout does not stop when it is cancelled" in caplog.text


async def test_what_an_extension_left_running_has_no_say_in_the_run(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, site: Path, tmp_path: Path
) -> None:
    body = """from pathlib import Path
async def later():
    while not Path(ctx.workspace, 'go').exists():
        await asyncio.sleep(0)
    for attempt in (ctx.notify('too late'), ctx.ui.input('Too late?'), ctx.repository()):
        try:
            await attempt
        except port.ExtensionError as error:
            said.append(str(error))
    Path(ctx.workspace, 'said').write_text('\\n'.join(said))
said = []
globals()['kept'] = asyncio.create_task(later())
return 'say: done'"""
    install(site, body)
    desk = make_run_context()

    await agent().run(make_task("/tryout"), desk)
    before = list(desk.log)
    (tmp_path / "go").touch()
    async with asyncio.timeout(60):
        while not (tmp_path / "said").exists():
            await asyncio.sleep(0)

    assert (tmp_path / "said").read_text() == "\n".join(["`/tryout` has ended; its context cannot be used any more"] * 3)
    assert desk.log == before


async def test_a_template_of_the_same_name_goes_before_it_and_that_is_said(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, site: Path, tmp_path: Path
) -> None:
    install_into(site, GREET)
    (tmp_path / ".tower" / "prompts").mkdir(parents=True)
    (tmp_path / ".tower" / "prompts" / "greet.md").write_text("say: from the workspace")
    desk = make_run_context()

    assert (await agent().run(make_task("/greet"), desk)).summary == "from the workspace"
    [warning] = desk.list_events(events.WarningRaised)
    assert warning.code == "EXTENSION_SHADOWED"
    assert warning.message == "`/greet` is `.tower/prompts/greet.md` here; the extension of that name is `/extension:greet`"

    desk = make_run_context()
    assert (await agent().run(make_task("/extension:greet Ada"), desk)).summary == "hello Ada"
    assert desk.list_events(events.WarningRaised) == []


async def test_no_file_can_take_the_name_that_is_always_the_extensions(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, site: Path, tmp_path: Path
) -> None:
    install_into(site, GREET)
    (tmp_path / ".tower" / "prompts" / "extension").mkdir(parents=True)
    (tmp_path / ".tower" / "prompts" / "extension" / "greet.md").write_text("say: from the workspace")

    assert (await agent().run(make_task("/extension:greet Ada"), make_run_context())).summary == "hello Ada"
    assert PromptCatalog(None).list_templates(str(tmp_path)) == ()


@pytest.mark.parametrize("text", ["/nothing of this name", "please /greet me", "/greet/me", " /greet"])
async def test_what_calls_no_extension_goes_to_the_model_as_it_is(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, site: Path, text: str
) -> None:
    install_into(site, GREET)
    model, desk = ScriptedModel([port.TextPart("ok")]), make_run_context()

    await agent(model).run(make_task(text), desk)

    assert model.conversations[0][-1].text == text
    assert desk.list_events(events.PromptExpanded) == []


async def test_what_an_extension_says_is_not_looked_through_again(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, site: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("not asked for")
    install(site, "return '/tryout @secret.txt'")
    model = ScriptedModel([port.TextPart("ok")])

    await agent(model).run(make_task("/tryout"), make_run_context())

    assert model.conversations[0][-1].text == "/tryout @secret.txt"


async def test_a_run_is_not_interrupted_by_an_extension_that_is_steered_into_it(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent, site: Path
) -> None:
    install_into(site, GREET)
    desk = make_run_context()
    desk.waiting.append(events.MessageQueued("msg_1", "/greet", events.Delivery.STEER, events.SYSTEM))

    await agent(ScriptedModel([port.TextPart("ok")])).run(make_task("say: hello"), desk)

    assert [warning.code for warning in desk.list_events(events.WarningRaised)] == ["EXTENSION_NOT_RUN"]
    assert desk.list_events(events.MessageDelivered) == [events.MessageDelivered("msg_1", "/greet")]


async def test_the_shipped_interview_drives_a_run_to_its_end(
    make_task: MakeTask, make_run_context: MakeDesk, agent: MakeAgent
) -> None:
    desk = make_run_context(dialogs=[engine.DialogAnswer({"responses": {"goal": "say: briefed"}})])

    result = await agent().run(make_task("/brief"), desk)

    assert desk.dialogs[0].method == "interview"
    assert result == engine.RunResult(events.Outcome.SUCCESS, "briefed")
