// The fold of MiniCodex's frames: however they come, the same is shown.
import type { RunState, ServerMessage, TranscriptItem } from "@wire/minicodex";
import { describe, expect, it } from "vitest";
import { Conversation, MOST_LIVE_OUTPUT, textOf } from "../src/model/conversation";

const state = { session_id: "sess_1", version: "1.0.0", capabilities: [], run_counter: 1, last_event_id: null, active_run_id: null };

function run(status: RunState["status"], pending: RunState["pending_approvals"] = []): RunState {
  return { run_id: "01a1e3da-8b2c-8669-3200-c69a3a20800f", status, started_at: "2026-01-01T00:00:00Z", finished_at: null, last_event_id: null, pending_approvals: pending };
}

function snapshot(transcript: TranscriptItem[], eventId: number, runState: RunState | null = null): ServerMessage {
  return { type: "snapshot", v: "1.0.0", session_state: state, transcript, event_id: eventId, run_state: runState };
}

function told(item: TranscriptItem, eventId: number): ServerMessage {
  return { ...item, event_id: eventId, ts: "2026-01-01T00:00:00Z" } as ServerMessage;
}

const STORY: TranscriptItem[] = [
  { type: "user_text", text: "read it" },
  { type: "reasoning", text: "I " },
  { type: "reasoning", text: "will." },
  { type: "assistant_text", text: "Reading " },
  { type: "assistant_text", text: "now." },
  { type: "tool_call", name: "read_file", args: { path: "a" }, call_id: "c1" },
  { type: "function_call_output", call_id: "c1", result: { content: [{ type: "text", text: "content" }], isError: false } },
  { type: "assistant_text", text: "Done." },
];

function shown(conversation: Conversation): unknown {
  return conversation.blocks.map((block) =>
    block.kind === "call" ? [block.name, block.state, block.result, block.asks] : block.kind === "notice" ? [block.code, block.text] : [block.kind, block.text],
  );
}

describe("a conversation", () => {
  it("drops what a failed model call had streamed when the call is retried", () => {
    const conversation = new Conversation();
    conversation.apply(snapshot([{ type: "user_text", text: "hi" }], 1));
    conversation.apply(told({ type: "reasoning", text: "Hm" }, 2));
    conversation.apply(told({ type: "assistant_text", text: "Hel" }, 3));
    conversation.apply({ type: "error", code: "RETRY", message: "Rate limited (429). Retrying in 20 s.", event_id: 4 } as ServerMessage);
    conversation.apply(told({ type: "assistant_text", text: "Hello" }, 5));
    expect(shown(conversation)).toEqual([
      ["user", "hi"],
      ["RETRY", "Rate limited (429). Retrying in 20 s."],
      ["assistant", "Hello"],
    ]);
  });

  it("puts the pieces of one text together", () => {
    const conversation = new Conversation();
    conversation.apply(snapshot(STORY, 100));
    expect(shown(conversation)).toEqual([
      ["user", "read it"],
      ["thinking", "I will."],
      ["assistant", "Reading now."],
      ["read_file", "done", "content", false],
      ["assistant", "Done."],
    ]);
  });

  it.each(STORY.map((_, at) => at))("is the same told live from item %i on as in one snapshot", (at) => {
    const whole = new Conversation();
    whole.apply(snapshot(STORY, 100));
    const live = new Conversation();
    live.apply(snapshot(STORY.slice(0, at), at));
    STORY.slice(at).forEach((item, place) => live.apply(told(item, at + place + 1)));
    expect(shown(live)).toEqual(shown(whole));
  });

  it("ignores what it has seen already when a line comes back", () => {
    const conversation = new Conversation();
    conversation.apply(snapshot([], 0));
    const frames = STORY.map((item, at) => told(item, at + 1));
    for (const frame of frames) conversation.apply(frame);
    const before = JSON.stringify(shown(conversation));
    for (const frame of frames) expect(conversation.apply(frame).what).toBe("nothing");
    expect(JSON.stringify(shown(conversation))).toBe(before);
    expect(conversation.lastEventId).toBe(STORY.length);
  });

  it("marks the call that is asked about, until somebody has decided", () => {
    const conversation = new Conversation();
    conversation.apply(snapshot([], 0));
    conversation.apply(told({ type: "tool_call", name: "run", args: { command: "ls" }, call_id: "c1" }, 1));
    conversation.apply({ type: "approval_pending", call_id: "c1", tool_key: "run", args_json: '{"command":"ls"}', event_id: 2 });
    expect(conversation.calls.get("c1")?.asks).toBe(true);
    conversation.apply({ type: "run_status", run_state: run("awaiting_approval", [{ call_id: "c1", tool_key: "run", args: {} }]), event_id: 3 });
    expect(conversation.calls.get("c1")?.asks).toBe(true);
    conversation.apply({ type: "approval_decision", call_id: "c1", decision: "deny_continue", event_id: 4 });
    expect(conversation.calls.get("c1")).toMatchObject({ asks: false, decision: "deny_continue" });
  });

  it("knows from a snapshot alone what is asked", () => {
    const conversation = new Conversation();
    const call: TranscriptItem = { type: "tool_call", name: "run", args: { command: "ls" }, call_id: "c1" };
    conversation.apply(snapshot([call], 5, run("awaiting_approval", [{ call_id: "c1", tool_key: "run", args: { command: "ls" } }])));
    expect(conversation.calls.get("c1")?.asks).toBe(true);
    expect(conversation.isActive).toBe(true);
  });

  it("takes an expired question back when the run's state no longer has it", () => {
    const conversation = new Conversation();
    conversation.apply(snapshot([], 0, run("awaiting_approval", [{ call_id: "c1", tool_key: "run", args: {} }])));
    conversation.apply({ type: "run_status", run_state: run("running"), event_id: 2 });
    expect(conversation.calls.get("c1")?.asks).toBe(false);
  });

  it("closes calls that a run has left open", () => {
    const conversation = new Conversation();
    conversation.apply(snapshot([{ type: "tool_call", name: "run", args: {}, call_id: "c1" }], 1, run("running")));
    conversation.apply({ type: "run_status", run_state: run("finished"), event_id: 2 });
    expect(conversation.calls.get("c1")?.state).toBe("failed");
    expect(conversation.isActive).toBe(false);
  });

  it("asks for a snapshot when what it missed is gone", () => {
    const conversation = new Conversation();
    expect(conversation.apply({ type: "error", code: "REPLAY_GAP", message: "" }).what).toBe("gap");
  });

  it("tells a refusal from an error of the story", () => {
    const conversation = new Conversation();
    conversation.apply(snapshot([], 0));
    expect(conversation.apply({ type: "error", code: "BUSY", message: "busy", req_id: "r" })).toEqual({
      what: "refused",
      refusal: { code: "BUSY", message: "busy", reqId: "r" },
    });
    expect(conversation.blocks).toHaveLength(0);
    conversation.apply({ type: "error", code: "RUN_FAILED", message: "no", event_id: 3 });
    expect(shown(conversation)).toEqual([["RUN_FAILED", "no"]]);
  });

  it("gives what is put out between a call and its result to that call", () => {
    const conversation = new Conversation();
    conversation.apply(snapshot([], 0));
    const event = (type: string, data: Record<string, unknown>) => ({ type, ts: "2026-01-01T00:00:00Z", run_id: "r", data });
    expect(conversation.note(event("run.output", { text: "said by the agent" }))).toBe(false);
    conversation.note(event("tool.call", { request_id: "c1" }));
    conversation.note(event("run.output", { text: "one\n" }));
    conversation.apply(told({ type: "tool_call", name: "run", args: {}, call_id: "c1" }, 1));
    conversation.note(event("run.output", { text: "two\n" }));
    conversation.note(event("tool.result", { request_id: "c1", duration_ms: 12 }));
    conversation.note(event("run.output", { text: "said by the agent" }));
    expect(conversation.notes.get("c1")).toEqual({ startedAt: "2026-01-01T00:00:00Z", durationMs: 12, output: "one\ntwo\n", decided: null });
  });

  it("knows who decided about a call, live or from the history, and the first decision counts", () => {
    const event = (type: string, data: Record<string, unknown>) => ({ type, ts: "2026-01-01T00:00:00Z", run_id: "r", data });
    const decided = event("run.permission_decided", { request_id: "q1", decision: "approve", by: "anna", via: "web" });
    const history = [event("tool.call", { request_id: "c1" }), event("run.permission_requested", { request_id: "q1" }), decided, event("tool.result", { request_id: "c1", duration_ms: 3 })];
    const conversation = new Conversation();
    for (const told of history) conversation.note(told);
    for (const told of history) conversation.note(told);
    conversation.note(event("run.permission_decided", { request_id: "q1", decision: "deny", by: "bob", via: "cli" }));
    expect(conversation.notes.get("c1")?.decided).toMatchObject({ decision: "approve", by: "anna" });
    conversation.note(event("run.output", { text: "not of a call that has ended" }));
    expect(conversation.notes.get("c1")?.output).toBe("");
  });

  it("keeps only the end of endless output", () => {
    const conversation = new Conversation();
    conversation.note({ type: "tool.call", ts: "", run_id: "r", data: { request_id: "c1" } });
    for (let at = 0; at < 20; at++) conversation.note({ type: "run.output", ts: "", run_id: "r", data: { text: "x".repeat(10_000) } });
    expect(conversation.notes.get("c1")?.output.length).toBe(MOST_LIVE_OUTPUT);
  });

  it("folds 50,000 events without keeping a block for each", () => {
    const conversation = new Conversation();
    conversation.apply(snapshot([], 0));
    for (let at = 1; at <= 50_000; at++) conversation.apply(told({ type: "assistant_text", text: "w " }, at));
    expect(conversation.blocks).toHaveLength(1);
    expect(conversation.lastEventId).toBe(50_000);
  });

  it("survives frames of the wrong shape", () => {
    const conversation = new Conversation();
    conversation.apply(snapshot([], 0));
    conversation.apply({ type: "approval_pending", call_id: "x", tool_key: "t", args_json: "not json", event_id: 1 });
    expect(conversation.calls.get("x")?.args).toEqual({});
    expect(() => conversation.apply({ type: "something_new", event_id: 2 } as unknown as ServerMessage)).not.toThrow();
  });
});

describe("a result", () => {
  it("is its text, and a word for what is none", () => {
    expect(textOf({ content: [{ type: "text", text: "a" }, { type: "image", mimeType: "image/png", data: "…" }] })).toBe("a\n[picture, image/png]");
    expect(textOf({ strange: 1 })).toContain("strange");
    expect(textOf({ content: [null, 3] })).toBe("null\n3");
  });
});
