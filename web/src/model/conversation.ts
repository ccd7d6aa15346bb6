// A conversation as shown: MiniCodex's frames folded into blocks. Facts from relay about the same calls (duration, live output)
// are stored separately by call id. Pure: no clock, no network, no DOM.
import type { RunState, ServerMessage, TranscriptItem } from "@wire/minicodex";
import type { AppEvent } from "@wire/relay";
import { decidedOf, type Decided } from "./approvals";

export interface TextBlock {
  kind: "user" | "assistant" | "thinking";
  key: number;
  rev: number;
  text: string;
  eventId: number | null;
  ts: string | null;
}

export interface CallBlock {
  kind: "call";
  key: number;
  rev: number;
  callId: string;
  name: string;
  args: Record<string, unknown>;
  state: "open" | "done" | "failed";
  result: string | null;
  asks: boolean;
  decision: "approve" | "deny_continue" | "deny_abort" | null;
  ts: string | null;
}

export interface NoticeBlock {
  kind: "notice";
  key: number;
  rev: number;
  level: "error" | "info";
  code: string;
  text: string;
  ts: string | null;
}

export type Block = TextBlock | CallBlock | NoticeBlock;

export interface CallNote {
  startedAt: string | null;
  durationMs: number | null;
  output: string;
  /** The decision about the call. */
  decided: Decided | null;
}

export interface Refusal {
  code: string;
  message: string;
  reqId: string | null;
}

export type Told =
  | { what: "nothing" }
  | { what: "changed" }
  | { what: "gap" }
  | { what: "refused"; refusal: Refusal }
  | { what: "accepted"; reqId: string | null };

const NOTHING: Told = { what: "nothing" };
const CHANGED: Told = { what: "changed" };
/** The maximum number of characters of a running call's output. Its result contains all of it. */
export const MOST_LIVE_OUTPUT = 65_536;
const MILD = new Set(["RETRY", "ABORTED", "ANSWER_CUT", "BUDGET_OVERRUN", "MODEL_STALLED"]);
const ENDED = new Set(["finished", "error", "idle"]);

export class Conversation {
  readonly blocks: Block[] = [];
  run: RunState | null = null;
  sessionId: string | null = null;
  lastEventId: number | null = null;
  /** True after a snapshot: the blocks are complete. */
  loaded = false;
  behind = false;
  /** The number of blocks that a failed model call can no longer void. */
  private settled = 0;
  readonly notes = new Map<string, CallNote>();
  readonly calls = new Map<string, CallBlock>();
  private nextKey = 1;
  private openNotes: string[] = [];
  /** The call id of each approval request. */
  private readonly asked = new Map<string, string>();

  get isActive(): boolean {
    return this.run !== null && !ENDED.has(this.run.status);
  }

  apply(frame: ServerMessage): Told {
    switch (frame.type) {
      case "welcome":
        this.sessionId = frame.session_state.session_id;
        return CHANGED;
      case "snapshot":
        this.restart(frame.transcript, frame.run_state ?? null, frame.event_id);
        this.sessionId = frame.session_state.session_id;
        return CHANGED;
      case "accepted":
        return { what: "accepted", reqId: frame.req_id ?? null };
      case "heartbeat":
        return NOTHING;
      case "backpressure":
        this.behind = frame.state === "drain";
        return CHANGED;
      case "error":
        if (frame.code === "REPLAY_GAP") return { what: "gap" };
        if (frame.event_id === undefined || frame.event_id === null) {
          return { what: "refused", refusal: { code: frame.code, message: frame.message, reqId: frame.req_id ?? null } };
        }
        break;
    }
    // The daemon may send an event again after a reconnect.
    const place = frame.event_id ?? null;
    if (place !== null) {
      if (this.lastEventId !== null && place <= this.lastEventId) return NOTHING;
      this.lastEventId = place;
    }
    switch (frame.type) {
      case "error":
        if (frame.code === "RETRY") this.withdrawStreamed();
        this.push({
          kind: "notice",
          key: 0,
          rev: 0,
          level: MILD.has(frame.code) ? "info" : "error",
          code: frame.code,
          text: frame.message,
          ts: frame.ts ?? null,
        });
        return CHANGED;
      case "run_status":
        this.setRun(frame.run_state);
        return CHANGED;
      case "approval_pending": {
        const call = this.calls.get(frame.call_id) ?? this.addCall(frame.tool_key, parsed(frame.args_json), frame.call_id, frame.ts ?? null);
        call.asks = true;
        call.rev++;
        return CHANGED;
      }
      case "approval_decision": {
        const call = this.calls.get(frame.call_id);
        if (call) {
          call.asks = false;
          call.decision = frame.decision;
          call.rev++;
        }
        return CHANGED;
      }
      case "turn_done":
        return NOTHING;
      default:
        this.item(frame, place, "ts" in frame && typeof frame.ts === "string" ? frame.ts : null);
        return CHANGED;
    }
  }

  private restart(transcript: TranscriptItem[], run: RunState | null, eventId: number): void {
    this.blocks.length = 0; // the same array, because a view holds it
    this.settled = 0;
    this.calls.clear();
    for (const item of transcript) this.item(item, null, null);
    this.lastEventId = eventId;
    this.loaded = true;
    this.behind = false;
    this.run = null;
    const settled = this.settled;
    if (run) this.setRun(run);
    if (run && !ENDED.has(run.status)) this.settled = settled; // the message that is being streamed can still be voided
  }

  private setRun(run: RunState): void {
    this.run = run;
    this.settled = this.blocks.length;
    const asked = new Set<string>();
    for (const brief of run.pending_approvals) {
      asked.add(brief.call_id);
      const call = this.calls.get(brief.call_id) ?? this.addCall(brief.tool_key, brief.args, brief.call_id, null);
      if (!call.asks) {
        call.asks = true;
        call.rev++;
      }
    }
    for (const call of this.calls.values()) {
      if (call.asks && !asked.has(call.callId)) {
        call.asks = false;
        call.rev++;
      }
    }
    if (ENDED.has(run.status)) {
      for (const call of this.calls.values()) {
        if (call.state === "open") {
          call.state = "failed";
          call.result ??= "Not finished: the run has ended";
          call.rev++;
        }
      }
    }
  }

  private item(item: TranscriptItem, eventId: number | null, ts: string | null): void {
    switch (item.type) {
      case "user_text":
        this.push({ kind: "user", key: 0, rev: 0, text: item.text, eventId, ts });
        return;
      case "assistant_text":
        this.say("assistant", item.text, eventId, ts);
        return;
      case "reasoning":
        this.say("thinking", item.text, eventId, ts);
        return;
      case "tool_call":
        this.addCall(item.name, item.args, item.call_id, ts);
        return;
      case "function_call_output": {
        const call = this.calls.get(item.call_id) ?? this.addCall("?", {}, item.call_id, ts);
        call.result = textOf(item.result);
        call.state = item.result["isError"] === true ? "failed" : "done";
        call.asks = false;
        call.rev++;
        return;
      }
    }
  }

  private say(kind: "assistant" | "thinking", text: string, eventId: number | null, ts: string | null): void {
    const last = this.blocks[this.blocks.length - 1];
    if (last?.kind === kind) {
      last.text += text;
      last.rev++;
    } else {
      this.push({ kind, key: 0, rev: 0, text, eventId, ts });
    }
  }

  /** Removes the message of a failed model call: the next call streams it from the start. */
  private withdrawStreamed(): void {
    const notices = this.blocks.splice(this.settled).filter((block) => block.kind === "notice");
    this.blocks.push(...notices);
    this.settled = this.blocks.length;
  }

  private addCall(name: string, args: Record<string, unknown>, callId: string, ts: string | null): CallBlock {
    const known = this.calls.get(callId);
    if (known && known.state === "open") return known;
    const call: CallBlock = {
      kind: "call",
      key: 0,
      rev: 0,
      callId,
      name,
      args,
      state: "open",
      result: null,
      asks: false,
      decision: null,
      ts,
    };
    this.calls.set(callId, call);
    this.push(call);
    return call;
  }

  private push(block: Block): void {
    block.key = this.nextKey++;
    this.blocks.push(block);
    if (block.kind === "user" || block.kind === "call") this.settled = this.blocks.length;
  }

  /** Adds a relay event about this session's calls. Returns true when something visible has changed. */
  note(event: AppEvent): boolean {
    const data = event.data;
    const requestId = typeof data["request_id"] === "string" ? data["request_id"] : null;
    switch (event.type) {
      case "tool.call":
        if (requestId === null) return false;
        this.noteOf(requestId).startedAt = event.ts;
        // The end may have arrived before the start was read from the history.
        if (this.noteOf(requestId).durationMs === null && !this.openNotes.includes(requestId)) this.openNotes.push(requestId);
        break;
      case "run.permission_requested": {
        // Relay sends a call and directly after it the approval request for it.
        const callId = typeof data["call_id"] === "string" ? data["call_id"] : this.openNotes[this.openNotes.length - 1];
        if (requestId !== null && callId !== undefined) this.asked.set(requestId, callId);
        return false;
      }
      case "run.permission_decided": {
        const told = decidedOf(event);
        const callId = told ? this.asked.get(told.requestId) : undefined;
        if (!told || callId === undefined) return false;
        this.noteOf(callId).decided ??= told.decided;
        this.touch(callId);
        return this.calls.has(callId);
      }
      case "tool.result": {
        if (requestId === null) return false;
        const note = this.noteOf(requestId);
        if (typeof data["duration_ms"] === "number") note.durationMs = data["duration_ms"];
        this.openNotes = this.openNotes.filter((open) => open !== requestId);
        break;
      }
      case "run.output": {
        // An agent sends no text while its calls run, so output between a call and its result belongs to the call.
        const to = requestId ?? this.openNotes[this.openNotes.length - 1];
        if (to === undefined || typeof data["text"] !== "string") return false;
        const note = this.noteOf(to);
        note.output = (note.output + data["text"]).slice(-MOST_LIVE_OUTPUT);
        this.touch(to);
        return this.calls.has(to);
      }
      default:
        return false;
    }
    this.touch(requestId);
    return this.calls.has(requestId);
  }

  private touch(callId: string): void {
    const call = this.calls.get(callId);
    if (call) call.rev++;
  }

  private noteOf(callId: string): CallNote {
    let note = this.notes.get(callId);
    if (!note) {
      note = { startedAt: null, durationMs: null, output: "", decided: null };
      this.notes.set(callId, note);
    }
    return note;
  }
}

function parsed(json: string | null | undefined): Record<string, unknown> {
  if (!json) return {};
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** Returns the text of an MCP CallToolResult; other content is shown as JSON. */
export function textOf(result: Record<string, unknown>): string {
  const content = result["content"];
  if (!Array.isArray(content)) return JSON.stringify(result, null, 2);
  const pieces = content.map((part: unknown) => {
    if (typeof part !== "object" || part === null) return String(part);
    const piece = part as Record<string, unknown>;
    if (piece["type"] === "text" && typeof piece["text"] === "string") return piece["text"];
    if (piece["type"] === "image") return `[picture, ${String(piece["mimeType"] ?? "unknown type")}]`;
    return JSON.stringify(piece, null, 2);
  });
  return pieces.join("\n");
}
