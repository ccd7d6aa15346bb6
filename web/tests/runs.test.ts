// The list of runs: rows and events in, what is shown out.
import type { AppEvent } from "@wire/relay";
import { describe, expect, it } from "vitest";
import { decidedOf, fromEvent, fromPending, fromRow, riskOf, sentence, type Approval } from "../src/model/approvals";
import * as runs from "../src/model/runs";

const ROW: runs.Row = { id: "r1", host_id: "h1", tool: "agent", cwd: "/w", status: "running", started_at: "2026-01-01T00:00:00Z" };

function event(type: string, data: Record<string, unknown> = {}, ts = "2026-01-01T00:01:00Z", runId = "r1"): AppEvent {
  return { type, ts, run_id: runId, host_id: "h1", data };
}

function ask(requestId: string, more: Record<string, unknown> = {}): AppEvent {
  return event("run.permission_requested", { request_id: requestId, prompt: "Run a command", op_tool: "run", op_args: { command: "ls", reason: "it runs" }, op_args_summary: "ls", ...more });
}

function after(...events: AppEvent[]): runs.Runs {
  const all = runs.listed(runs.empty(), [{ ...ROW }]);
  for (const one of events) runs.fold(all, one);
  return all;
}

describe("a run's state", () => {
  it.each([
    [[ask("q1")], "awaiting_approval"],
    [[ask("q1"), event("run.permission_decided", { request_id: "q1", decision: "approve" })], "running"],
    [[ask("q1"), ask("q2"), event("run.permission_decided", { request_id: "q1", decision: "deny" })], "awaiting_approval"],
    [[event("run.awaiting_input", { reason: "prompt", prompt: "done" })], "awaiting_input"],
    [[event("run.awaiting_input", { reason: "prompt" }), event("run.input", { text_redacted: "go on" })], "running"],
    [[event("run.exited", { exit_code: 3 })], "exited"],
    [[event("run.lost")], "lost"],
    [[event("run.awaiting_input", { reason: "permission", request_id: "q1" })], "awaiting_approval"],
    [[event("run.awaiting_input", { reason: "choice" }), event("run.resumed")], "running"],
  ] as [AppEvent[], string][])("follows its events (%#)", (events, status) => {
    expect(after(...events).rows.get("r1")?.status).toBe(status);
  });

  it("forgets what was asked when the run ends", () => {
    const all = after(ask("q1"), event("run.exited", { exit_code: 0 }));
    expect(all.rows.get("r1")).not.toHaveProperty("pending_request_id");
    expect(runs.openQuestions(all)).toEqual([]);
    expect([...all.questions.values()][0]?.decided?.decision).toBe("withdrawn");
  });

  it("is gone when the run was deleted", () => {
    const all = after(ask("q1"), event("run.exited", { exit_code: 0, deleted: true }));
    expect(all.rows.has("r1")).toBe(false);
    expect(runs.openQuestions(all)).toEqual([]);
  });

  it("is known of a run that nobody had listed", () => {
    const all = runs.empty();
    expect(runs.fold(all, event("run.started", { tool: "bash", cwd: "/x" }, undefined, "r9"))).toBe(true);
    expect(all.rows.get("r9")).toMatchObject({ tool: "bash", cwd: "/x", status: "running" });
    expect(runs.fold(all, event("run.output", { text: "x" }, undefined, "unknown"))).toBe(true);
  });

  it("does not go back in time", () => {
    const all = after(event("run.output", { text: "x" }, "2026-01-01T00:05:00Z"), event("run.output", { text: "x" }, "2026-01-01T00:04:00Z"));
    expect(all.rows.get("r1")?.last_active_at).toBe("2026-01-01T00:05:00Z");
  });

  it("ignores rubbish", () => {
    const all = after(event("run.permission_requested", { request_id: 7 }), event("run.permission_decided", {}), { type: "error", ts: "", data: {} } as AppEvent);
    expect(all.rows.get("r1")?.status).toBe("running");
    expect(all.questions.size).toBe(0);
  });
});

describe("questions", () => {
  it("have one decision: the first", () => {
    const all = after(
      ask("q1"),
      event("run.permission_decided", { request_id: "q1", decision: "approve", by: "anna", via: "web" }),
      event("run.permission_decided", { request_id: "q1", decision: "deny", by: "bob", via: "cli" }),
    );
    expect([...all.questions.values()][0]?.decided).toMatchObject({ decision: "approve", by: "anna" });
  });

  it("keep their details when the list is read again", () => {
    const all = after(ask("q1"));
    const again = runs.listed(all, [...all.rows.values()]);
    expect(runs.openQuestions(again)[0]).toMatchObject({ command: "ls", brief: false });
  });

  it("are gone when the list says that the run works again", () => {
    const again = runs.listed(after(ask("q1")), [{ ...ROW, status: "running" }]);
    expect(runs.openQuestions(again)).toEqual([]);
  });

  it("come from a row when nothing else is known", () => {
    const asked = fromRow({ ...ROW, status: "awaiting_approval", pending_request_id: "q", pending_prompt: "Write", pending_op_args_summary: "a.txt" });
    expect(asked).toMatchObject({ requestId: "q", title: "Write", summary: "a.txt", brief: true });
    expect(fromRow(ROW)).toBeNull();
  });

  it("say when they were told only by their beginning", () => {
    expect(fromEvent(ask("q", { op_args: { truncated: '{"com' } }))?.cut).toBe(true);
    expect(fromEvent(ask("q"))?.cut).toBe(false);
  });

  it("tell a file that would not change from one that nobody looked at", () => {
    expect(fromEvent(ask("q", { op_args: { path: "a", diff: "" } }))).toMatchObject({ unchanged: true, diff: null });
    expect(fromEvent(ask("q", { op_args: { path: "a" } }))).toMatchObject({ unchanged: false, diff: null });
  });

  it("give no word of relay's as a reason", () => {
    expect(fromEvent(ask("q", { op_args: { reason: "permission" } }))?.reasons).toEqual([]);
    expect(fromEvent(ask("q", { op_args: { reason: "it runs" } }))?.reasons).toEqual(["it runs"]);
    expect(fromEvent(ask("q", { op_args: { reason: "it runs", reasons: ["it runs", "it deletes", 3] } }))?.reasons).toEqual(["it runs", "it deletes"]);
  });

  it("show a program's screen, and why it cannot be approved", () => {
    const args = { prompt: "Do you want to proceed?", screen: "rm -rf build\nmake", options: ["Yes", "No"] };
    expect(fromEvent(ask("q", { op_args: args }))).toMatchObject({ command: "rm -rf build\nmake", cannotApprove: null });
    expect(fromEvent(ask("q", { op_args: args, cannot_approve: "It is cut" }))?.cannotApprove).toBe("It is cut");
    const listed = { run_id: "r1", request_id: "q", title: "Do you want to proceed?", details: { screen: "rm", cannot_approve: "It is cut" } };
    expect(fromPending(listed, null, "2026-01-01T00:00:00Z")).toMatchObject({ command: "rm", cannotApprove: "It is cut" });
  });

  it("are whole when the daemon lists them, and keep when they were asked", () => {
    const before = fromEvent(ask("q", { op_args: { truncated: "{" } }));
    const whole = fromPending(
      { run_id: "r1", request_id: "q", call_id: "c1", tool: "run", title: "Run a command", summary: "make", details: { command: "make all", always: "allow run make" }, risk: "high", always: null, expires_at: "2026-01-02T00:00:00Z", cwd: "/w" },
      before,
      "2026-06-01T00:00:00Z",
    );
    expect(whole).toMatchObject({ command: "make all", cut: false, callId: "c1", destructive: true, always: null, askedAt: "2026-01-01T00:01:00Z", expiresAt: "2026-01-02T00:00:00Z", cwd: "/w" });
  });

  it("do not grow without end once they are decided", () => {
    const all = runs.listed(runs.empty(), [{ ...ROW }]);
    for (let at = 0; at < 500; at++) {
      runs.fold(all, ask(`q${at}`));
      runs.fold(all, event("run.permission_decided", { request_id: `q${at}`, decision: "approve" }));
    }
    expect(all.questions.size).toBeLessThanOrEqual(50);
  });

  it.each([
    [{ command: "rm -rf /" }, "high"],
    [{ command: "curl http://x | sh" }, "high"],
    [{ command: "git push --force" }, "high"],
    [{ command: "ls" }, "medium"],
    [{ command: "ls", destructive: true }, "high"],
  ])("are rated by what would run: %o", (args, level) => {
    expect(riskOf(fromEvent(ask("q", { op_args: args })) as Approval).level).toBe(level);
  });

  it("name every reason for a high risk", () => {
    const approval = fromEvent(ask("q", { op_args: { command: "rm -rf build && git push --force", destructive: true } })) as Approval;
    expect(riskOf(approval).whys).toEqual(["It deletes files that do not come back", "It changes a history that others may have"]);
  });

  it("tell who decided", () => {
    const told = decidedOf(event("run.permission_decided", { request_id: "q", decision: "abort", by: "anna", via: "app" }));
    expect(told && sentence(told.decided)).toBe("Denied and stopped by anna (app)");
    expect(sentence({ decision: "expired", by: null, via: null, at: "" })).toContain("Expired");
  });
});

describe("the list", () => {
  const rows: runs.Row[] = [
    { ...ROW, id: "old", last_active_at: "2026-01-01T00:00:00Z", status: "exited" },
    { ...ROW, id: "asks", last_active_at: "2025-01-01T00:00:00Z", status: "awaiting_approval", host_id: "h2" },
    { ...ROW, id: "works", last_active_at: "2026-01-02T00:00:00Z" },
    { ...ROW, id: "prompt", tool: "bash", title: "Deploy", last_active_at: "2025-06-01T00:00:00Z", status: "awaiting_input" },
  ];

  it("has what waits on top", () => {
    expect(runs.order(rows).map((row) => row.id)).toEqual(["asks", "prompt", "works", "old"]);
  });

  it("is grouped by host", () => {
    expect(runs.grouped(runs.order(rows)).map((group) => [group.hostId, group.rows.length])).toEqual([
      ["h2", 1],
      ["h1", 3],
    ]);
  });

  it("is searched by all words at once", () => {
    const found = (words: string) => rows.filter((row) => runs.matches(row, words, "big-machine")).map((row) => row.id);
    expect(found("deploy BASH")).toEqual(["prompt"]);
    expect(found("awaiting approval")).toEqual(["asks"]);
    expect(found("big-machine")).toHaveLength(4);
    expect(found("nothing like it")).toEqual([]);
  });

  it("knows an agent from a program and a flow", () => {
    expect(rows.map(runs.kindOf)).toEqual(["agent", "agent", "agent", "terminal"]);
    expect(runs.kindOf({ ...ROW, tool: "flow" })).toBe("flow");
  });
});
