// All runs and all pending approvals, built from the run list and the events after it. Pure: `fold` is deterministic.
import type { AppEvent, RowUsage, RunRow } from "@wire/relay";
import * as approvals from "./approvals";

export type Kind = "agent" | "terminal" | "flow";

export type Row = RunRow;
export type Usage = RowUsage;

export interface Runs {
  rows: Map<string, Row>;
  /** Approvals by run and request, including decided ones until they are forgotten. */
  questions: Map<string, approvals.Approval>;
}

/** The maximum number of decided approvals that stay visible, so that other users see the decision. */
const MOST_DECIDED = 50;

export function empty(): Runs {
  return { rows: new Map(), questions: new Map() };
}

export function questionKey(runId: string, requestId: string): string {
  return `${runId}\n${requestId}`;
}

export function kindOf(row: Row): Kind {
  const engine = row.engine ?? row.tool;
  if (engine === "flow") return "flow";
  if (engine === "agent" || row.tool === "agent") return "agent";
  return "terminal";
}

/** Replaces the known runs with the hub's current list, and keeps the details of approvals that are still pending. */
export function listed(before: Runs, rows: Row[]): Runs {
  const runs: Runs = { rows: new Map(rows.map((row) => [row.id, row])), questions: new Map() };
  const open = new Set<string>();
  for (const row of rows) {
    const asked = approvals.fromRow(row);
    if (asked) {
      const key = questionKey(row.id, asked.requestId);
      open.add(key);
      runs.questions.set(key, before.questions.get(key) ?? asked);
    }
  }
  for (const [key, question] of before.questions) {
    // A run may have several pending approvals, and its row names only one of them.
    const row = runs.rows.get(question.runId);
    if (question.decided || (row?.status === "awaiting_approval" && !open.has(key))) runs.questions.set(key, question);
  }
  return runs;
}

/** Returns true when the row is incomplete and should be loaded again. */
export function fold(runs: Runs, event: AppEvent): boolean {
  const runId = event.run_id;
  if (!runId) return false;
  const row = runs.rows.get(runId);
  if (!row) {
    if (event.type !== "run.started") return event.type.startsWith("run.") || event.type.startsWith("tool.");
    runs.rows.set(runId, {
      id: runId,
      host_id: event.host_id ?? "",
      tool: text(event.data["tool"]) ?? "",
      cwd: text(event.data["cwd"]) ?? "",
      status: "running",
      started_at: event.ts,
      last_active_at: event.ts,
    });
    return true;
  }
  const seen: Row = { ...row, last_active_at: later(row.last_active_at, event.ts) };
  let again = false;
  switch (event.type) {
    case "run.input":
      if (seen.status !== "awaiting_approval") wake(seen);
      if (!seen.title && kindOf(seen) === "agent") seen.title = firstLine(text(event.data["text_redacted"]) ?? "");
      break;
    case "run.resumed":
      wake(seen);
      break;
    case "run.awaiting_input":
      if (text(event.data["request_id"]) !== null) {
        seen.status = "awaiting_approval";
      } else if (openQuestions(runs, runId).length === 0) {
        unask(seen);
        seen.status = "awaiting_input";
        set(seen, "pending_reason", text(event.data["reason"]));
        set(seen, "pending_prompt", text(event.data["prompt"]));
      }
      break;
    case "run.permission_requested": {
      const asked = approvals.fromEvent(event);
      if (asked) {
        runs.questions.set(questionKey(runId, asked.requestId), asked);
        ask(seen, asked);
      }
      break;
    }
    case "run.permission_decided": {
      const told = approvals.decidedOf(event);
      if (!told) break;
      const key = questionKey(runId, told.requestId);
      const question = runs.questions.get(key);
      // The first decision counts; a repeated one changes nothing.
      if (question && !question.decided) runs.questions.set(key, { ...question, decided: told.decided });
      forgetOld(runs);
      const left = openQuestions(runs, runId)[0];
      if (left) ask(seen, left);
      else if (seen.status === "awaiting_approval") wake(seen);
      break;
    }
    case "run.exited":
      if (event.data["deleted"] === true) {
        // The run was deleted for every client, so it can no longer be opened.
        withdraw(runs, runId, event.ts);
        runs.rows.delete(runId);
        return false;
      }
      unask(seen);
      seen.status = "exited";
      seen.ended_at = event.ts;
      if (typeof event.data["exit_code"] === "number") seen.exit_code = event.data["exit_code"];
      withdraw(runs, runId, event.ts);
      break;
    case "run.lost":
      seen.status = "lost";
      break;
    case "run.found":
      again = true;
      break;
    case "run.usage":
      seen.usage = addUsage(seen.usage, event.data);
      break;
    case "run.output":
    case "tool.call":
    case "tool.result":
      break;
    default:
      break;
  }
  runs.rows.set(runId, seen);
  return again;
}

export function openQuestions(runs: Runs, runId?: string): approvals.Approval[] {
  return [...runs.questions.values()].filter((question) => !question.decided && (runId === undefined || question.runId === runId));
}

function ask(row: Row, asked: approvals.Approval): void {
  row.status = "awaiting_approval";
  row.pending_request_id = asked.requestId;
  row.pending_reason = "permission";
  row.pending_prompt = asked.title;
  row.pending_op_tool = asked.tool;
  row.pending_op_args_summary = asked.summary;
}

function unask(row: Row): void {
  for (const field of ["pending_request_id", "pending_reason", "pending_prompt", "pending_op_tool", "pending_op_args_summary"] as const) {
    delete row[field];
  }
}

function wake(row: Row): void {
  unask(row);
  row.status = "running";
  delete row.ended_at;
  delete row.exit_code;
}

function withdraw(runs: Runs, runId: string, at: string): void {
  for (const question of openQuestions(runs, runId)) {
    const decided = { decision: "withdrawn", by: null, via: null, at };
    runs.questions.set(questionKey(runId, question.requestId), { ...question, decided });
  }
}

function forgetOld(runs: Runs): void {
  const decided = [...runs.questions].filter(([, question]) => question.decided);
  for (const [key] of decided.slice(0, Math.max(0, decided.length - MOST_DECIDED))) runs.questions.delete(key);
}

function addUsage(before: Usage | undefined, data: Record<string, unknown>): Usage {
  const number = (name: string): number => (typeof data[name] === "number" ? (data[name] as number) : 0);
  const cost = typeof data["cost"] === "number" ? (before?.cost ?? 0) + data["cost"] : (before?.cost ?? null);
  return {
    input_tokens: (before?.input_tokens ?? 0) + number("input_tokens"),
    output_tokens: (before?.output_tokens ?? 0) + number("output_tokens"),
    cost,
    context_used: number("input_tokens") + number("output_tokens") || (before?.context_used ?? 0),
    context_window: typeof data["context_window"] === "number" ? data["context_window"] : (before?.context_window ?? null),
  };
}

// The list as shown

const RANK: Record<Row["status"], number> = { awaiting_approval: 0, running: 1, awaiting_input: 2, lost: 3, exited: 4 };

export interface Group {
  hostId: string;
  rows: Row[];
}

/** Returns whether the run waits for a user. An agent between two messages does not. */
export function waits(row: Row): boolean {
  return row.status === "awaiting_approval" || (row.status === "awaiting_input" && kindOf(row) === "terminal");
}

export function matches(row: Row, words: string, hostName = ""): boolean {
  const all = `${row.title ?? ""} ${row.tool} ${row.cwd} ${row.id} ${row.status.replace("_", " ")} ${hostName} ${row.model ?? ""}`.toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => all.includes(word));
}

/** Sorts by latest activity, with waiting runs before all others. */
export function order(rows: Iterable<Row>): Row[] {
  return [...rows].sort(
    (one, other) =>
      Number(waits(other)) - Number(waits(one)) ||
      Math.min(RANK[one.status], 3) - Math.min(RANK[other.status], 3) ||
      (other.last_active_at ?? other.started_at).localeCompare(one.last_active_at ?? one.started_at),
  );
}

export function grouped(rows: Row[]): Group[] {
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const group = groups.get(row.host_id);
    if (group) group.push(row);
    else groups.set(row.host_id, [row]);
  }
  return [...groups].map(([hostId, members]) => ({ hostId, rows: members }));
}

export function titleOf(row: Row): string {
  if (row.title) return row.title;
  if (kindOf(row) === "terminal") return row.tool || "program";
  return kindOf(row) === "flow" ? "Flow" : "New conversation";
}

function text(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}

function set(row: Row, field: "pending_reason" | "pending_prompt", value: string | null): void {
  if (value === null) delete row[field];
  else row[field] = value;
}

function firstLine(said: string): string {
  return said.trim().split("\n", 1)[0]?.slice(0, 120) ?? "";
}

function later(one: string | undefined, other: string): string {
  return one !== undefined && one > other ? one : other;
}
