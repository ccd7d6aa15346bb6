// Pending approvals as relay sends them. Pure.
import type { AppEvent, Message, RunRow } from "@wire/relay";

export type Verdict = "approve" | "approve_for_session" | "deny" | "abort";

export interface Decided {
  decision: string;
  by: string | null;
  via: string | null;
  at: string;
}

export interface Approval {
  runId: string;
  requestId: string;
  title: string;
  tool: string;
  summary: string;
  args: unknown;
  /** Relay sent only the beginning of the request. */
  cut: boolean;
  /** The reason why the daemon refuses an approval; null when it can be approved. */
  cannotApprove: string | null;
  command: string | null;
  path: string | null;
  cwd: string | null;
  diff: string | null;
  /** The change was computed, and it is empty. */
  unchanged: boolean;
  /** Every reason why a decision is needed. */
  reasons: string[];
  destructive: boolean;
  /** The rule that "always" would add; null when every call needs its own approval. */
  always: string | null;
  callId: string | null;
  askedAt: string;
  expiresAt: string | null;
  /** Only the fields of the run list are known so far. */
  brief: boolean;
  decided: Decided | null;
}

/** Relay's names for the kinds of prompts in a terminal; as a reason they would not inform the user. */
const KINDS = new Set(["permission", "choice", "prompt", "unknown"]);

/** `whys` are sentences without a full stop; the list is never empty. */
export type Risk = { level: "low" | "medium" | "high"; whys: string[] };

export function fromEvent(event: AppEvent): Approval | null {
  if (event.type !== "run.permission_requested" || !event.run_id) return null;
  return fromData(event.run_id, event.data, event.ts);
}

export function fromMessage(runId: string, message: Message): Approval | null {
  if (message.kind !== "run.permission_requested" || typeof message.data !== "object" || message.data === null) return null;
  return fromData(runId, message.data as Record<string, unknown>, message.ts);
}

function fromData(runId: string, data: Record<string, unknown>, askedAt: string): Approval | null {
  const requestId = text(data["request_id"]);
  if (requestId === null) return null;
  const args = data["op_args"];
  const held = typeof args === "object" && args !== null && !Array.isArray(args) ? (args as Record<string, unknown>) : {};
  const inner = typeof held["args"] === "object" && held["args"] !== null ? (held["args"] as Record<string, unknown>) : {};
  return {
    runId,
    requestId,
    title: text(data["prompt"]) ?? "Asks for permission",
    tool: text(data["op_tool"]) ?? "",
    summary: text(data["summary"]) ?? text(data["op_args_summary"]) ?? "",
    args,
    cut: Object.keys(held).length === 1 && typeof held["truncated"] === "string",
    cannotApprove: text(data["cannot_approve"]) ?? text(held["cannot_approve"]),
    // A program's prompt is the text on its screen.
    command: text(held["command"]) ?? text(held["cmd"]) ?? text(inner["command"]) ?? text(held["screen"]),
    path: text(held["path"]) ?? text(inner["path"]),
    cwd: text(held["cwd"]),
    diff: text(held["diff"]),
    unchanged: held["diff"] === "",
    reasons: reasonsOf(held),
    destructive: held["destructive"] === true,
    always: text(data["rule"]) ?? text(held["always"]),
    callId: text(data["call_id"]),
    askedAt,
    expiresAt: text(data["expires_at"]),
    brief: false,
    decided: null,
  };
}

/** A pending approval from `GET /approvals`: complete, with its deadline and its call. */
export interface Pending {
  run_id: string;
  request_id: string;
  call_id?: string;
  tool?: string;
  title: string;
  summary?: string;
  details?: Record<string, unknown>;
  risk?: string;
  always?: string | null;
  cwd?: string;
  expires_at?: string;
}

/** Keeps the known time of the request. */
export function fromPending(pending: Pending, before: Approval | null, askedAt: string): Approval | null {
  const data = {
    request_id: pending.request_id,
    prompt: pending.title,
    op_tool: pending.tool,
    op_args: pending.details ?? {},
    summary: pending.summary,
    call_id: pending.call_id,
    expires_at: pending.expires_at,
    rule: pending.always,
  };
  const whole = fromData(pending.run_id, data, before?.askedAt ?? askedAt);
  if (!whole) return null;
  const held = pending.details ?? {};
  whole.cut = false;
  whole.destructive ||= pending.risk === "high";
  // "Always" needs a rule; it is not offered when the daemon names none.
  whole.always = pending.always ?? null;
  whole.cwd ??= text(held["cwd"]) ?? text(pending.cwd);
  return whole;
}

/** Builds an approval from the run list, until the request itself is loaded. */
export function fromRow(row: RunRow): Approval | null {
  if (row.status !== "awaiting_approval" || row.pending_request_id === undefined) return null;
  return {
    runId: row.id,
    requestId: row.pending_request_id,
    title: row.pending_prompt ?? "Asks for permission",
    tool: row.pending_op_tool ?? "",
    summary: row.pending_op_args_summary ?? "",
    args: null,
    cut: false,
    cannotApprove: null,
    command: null,
    path: null,
    cwd: row.cwd,
    diff: null,
    unchanged: false,
    reasons: [],
    destructive: false,
    always: null,
    callId: null,
    askedAt: row.last_active_at ?? row.started_at,
    expiresAt: null,
    brief: true,
    decided: null,
  };
}

export function decidedOf(event: AppEvent): { requestId: string; decided: Decided } | null {
  if (event.type !== "run.permission_decided") return null;
  const requestId = text(event.data["request_id"]);
  const decision = text(event.data["decision"]);
  if (requestId === null || decision === null) return null;
  return { requestId, decided: { decision, ...deciderOf(event.data), at: event.ts } };
}

/** Returns the user who decided. Another machine's statement about its users is shown as a claim. */
export function deciderOf(data: Record<string, unknown>): { by: string | null; via: string | null } {
  const by = text(data["by"]);
  const via = text(data["via"]);
  if (by === null || (via !== "host" && via !== "hub")) return { by, via };
  const claims = data["claims"] as { by?: unknown; via?: unknown } | null | undefined;
  const named = text(claims?.by);
  return { by: named === null ? `${via} ${by}` : `${via} ${by}, which says ${named}`, via: text(claims?.via) };
}

const HIGH: [RegExp, string][] = [
  [/\brm\s+-\w*[rf]/, "It deletes files that do not come back"],
  [/\b(sudo|doas|su)\b/, "It runs with the rights of another user"],
  [/\bmkfs|\bdd\s+if=|\bshred\b/, "It overwrites data for good"],
  [/\bgit\s+push\s+.*(--force|-f\b|--delete)/, "It changes a history that others may have"],
  [/\bgit\s+(reset\s+--hard|clean\b)/, "It discards changes that git has no copy of"],
  [/\b(curl|wget)\b[^|]*\|\s*(ba|z|da)?sh\b/, "It runs a script from the network"],
  [/\bchmod\s+-R|\bchown\s+-R/, "It changes who may use many files"],
  [/\bkubectl\s+delete|\bterraform\s+(apply|destroy)\b/, "It changes or removes what runs elsewhere"],
  [/\bdrop\s+(table|database)\b/i, "It deletes data for good"],
];

/** Estimates the risk with every reason that applies, as a visual hint. The policy decides what is allowed, not this page. */
export function riskOf(approval: Approval): Risk {
  const command = approval.command ?? "";
  const high = HIGH.filter(([pattern]) => pattern.test(command)).map(([, why]) => why);
  if (approval.destructive && high.length === 0) high.push("It can destroy something that does not come back");
  if (high.length > 0) return { level: "high", whys: high };
  if (command || /bash|run|exec|terminal|commit|mcp/.test(approval.tool)) return { level: "medium", whys: ["It runs something"] };
  if (/write|edit/.test(approval.tool)) return { level: "low", whys: ["It changes a file in the workspace"] };
  return { level: "medium", whys: ["It acts in your name"] };
}

function reasonsOf(held: Record<string, unknown>): string[] {
  const listed = Array.isArray(held["reasons"]) ? held["reasons"] : [held["reason"]];
  return listed.map(text).filter((reason): reason is string => reason !== null && !KINDS.has(reason));
}

export function sentence(decided: Decided): string {
  const who = decided.by ? ` by ${decided.by}${decided.via ? ` (${decided.via})` : ""}` : "";
  switch (decided.decision) {
    case "approve":
      return `Approved${who}`;
    case "approve_for_session":
      return `Approved for this session${who}`;
    case "deny":
      return `Denied${who}`;
    case "abort":
      return `Denied and stopped${who}`;
    case "expired":
      return "Expired: nobody decided in time";
    case "withdrawn":
      return "Withdrawn: the question is no longer asked";
    default:
      return `${decided.decision}${who}`;
  }
}

function text(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}
