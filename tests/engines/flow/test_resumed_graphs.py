"""Random graphs, cut off at any event and gone on with: the end is that of a run in one piece, and nothing is done twice."""

import asyncio
import copy
import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.engines.flow.recording import RecordingFlowContext
from tests.engines.flow.runtime.stage import CountingStepKind, make_document, make_node
from tests.engines.flow.runtime.test_against_a_reference import Graph, graphs, interpret

from switchtower.core import events
from switchtower.core.ports import engine
from switchtower.engines.flow import ir, progress, recorder
from switchtower.engines.flow.runtime import event_buffer as runtime_events
from switchtower.engines.flow.runtime import executor, run
from switchtower.engines.flow.runtime.kinds import port, registry

INPUTS = {letter: letter for letter in "abcdz"}


class FlowProcessLife:
    """One life of a daemon: it goes on with what the journal has, and journals what it does."""

    def __init__(self, described: dict[str, Any], journal: tuple[engine.FlowEvent, ...]) -> None:
        self.context = RecordingFlowContext()
        before = progress.read_calls(journal)
        self.standing = progress.compute_progress(ir.parse_flow(described), before)
        flow = run.load_flow(described)
        setting = port.StepEnvironment(run_id="run_1", workspace="/nonexistent", events=runtime_events.EventBuffer())
        self.work = CountingStepKind()
        self.run = run.FlowRunState(
            flow,
            run.resolve_inputs(flow, INPUTS),
            registry.KindRegistry({"work": self.work}),
            setting,
            before=self.standing.before,
        )
        of = events.Flow(name="staged", document=described, inputs=INPUTS)
        self.chronicle = recorder.FlowRecorder(self.context, of, "run_1", before)

    async def run_to_end(self) -> dict[str, Any]:
        for step_id, attempt, failure in self.standing.interrupted:
            await self.chronicle.record_interruption(step_id, attempt, failure.to_error_object())
        async with asyncio.timeout(60):
            await executor.FlowExecution(self.run).execute()
        told: dict[str, Any] = json.loads(self.run.encode_poll())
        for event in told["events"]:
            await self.chronicle.record_event(event)
        return told


A_STEP_IS_CUT: Graph = ([make_node("long", "work", fails=0, turns=2), make_node("bad", "work", fails=1, turns=0)], [])
"""The first still runs when the second fails and ends the flow."""


def list_succeeded(journal: tuple[engine.FlowEvent, ...]) -> set[str]:
    return {event.call_id for event in journal if isinstance(event, events.ToolFinished) and not event.is_error}


def add_lost_tries(graph: Graph, lost: dict[str, int]) -> Graph:
    """The same graph where these tries failed too."""
    nodes, edges = copy.deepcopy(graph)
    for described in nodes:
        if described["id"] in lost:
            described["with"]["fails"] = max(described["with"]["fails"], lost[described["id"]] + 1)
    return nodes, edges


@settings(max_examples=300, deadline=None)
@given(graph=graphs(), cuts=st.lists(st.floats(0, 1), min_size=1, max_size=3))
@example(graph=A_STEP_IS_CUT, cuts=[1.0])
def test_a_run_that_was_cut_off_ends_like_one_in_one_piece(graph: Graph, cuts: list[float]) -> None:
    described = make_document(*graph, a="string", b="string", c="string", d="string", z="string")
    journal: tuple[engine.FlowEvent, ...] = ()
    lost: dict[str, int] = {}
    for cut in cuts:
        life = FlowProcessLife(described, journal)
        asyncio.run(life.run_to_end())
        kept = life.context.steps[: round(cut * len(life.context.steps))]
        journal += kept
        for step_id, attempt, _ in FlowProcessLife(described, journal).standing.interrupted:
            lost[step_id] = max(attempt, lost.get(step_id, 0))

    last = FlowProcessLife(described, journal)
    told = asyncio.run(last.run_to_end())

    wanted, fatal = interpret(add_lost_tries(graph, lost), stop_at_failure=False)
    began = [*progress.read_calls(journal).called, *last.context.called]
    assert len(began) == len(set(began)), "a try begins once"
    assert not list_succeeded(journal) & set(last.context.ends), "what succeeded is not done again"
    executed = {call_id.split(":")[1] for call_id in began}
    assert executed <= wanted
    assert told["status"] == ("failed" if fatal else "completed")
    if fatal:
        assert told["summary"]["error"]["data"]["step_id"] in fatal
    else:
        assert executed == wanted
        assert told["summary"]["completed_steps"] + told["summary"]["failed_steps"] == len(wanted)
        assert progress.read_calls((*journal, *last.context.steps)).open == []
