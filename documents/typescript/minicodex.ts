// Made from the wire types by `make schemas`; not to be edited.
// Times are RFC 3339, ids of runs are UUIDs. What is absent was not said.

export type RunStatus =
  | "idle" | "starting" | "running" | "awaiting_approval" | "aborting" | "finished" | "error";

export interface SessionState {
  session_id: string;
  version: string;
  capabilities: string[];
  last_event_id: number | null;
  active_run_id: string | null;
  run_counter: number;
}

export interface RunState {
  run_id: string;
  status: RunStatus;
  started_at: string;
  finished_at: string | null;
  pending_approvals: ApprovalBrief[];
  last_event_id: number | null;
}

export interface ApprovalBrief {
  call_id: string;
  tool_key: string;
  args: Record<string, unknown>;
}

export type TranscriptItem =
  | { type: "user_text"; text: string }
  | { type: "assistant_text"; text: string }
  | { type: "tool_call"; name: string; args: Record<string, unknown>; call_id: string }
  | { type: "function_call_output"; call_id: string; result: Record<string, unknown> }
  | { type: "reasoning"; text: string };

// What any message may carry beside its own fields.
export interface Envelope {
  v?: string | null;
  session_id?: string | null;
  run_id?: string | null;
  event_id?: number | null;
  ts?: string | null;
  req_id?: string | null;
}

// Client → server

export type ClientMessage = Envelope & (
  | { type: "hello"; v: string; client_capabilities?: string[] }
  | { type: "resume"; last_seen_event_id?: number | null }
  | { type: "send"; text: string; client_msg_id?: string | null }
  | { type: "approve"; call_id: string }
  | { type: "deny"; call_id: string; abort?: boolean }
  | { type: "abort" }
  | { type: "get_snapshot"; include_transcript_window?: boolean }
  | { type: "ping"; nonce?: string | null }
);

// Server → client

// Items of the transcript as they are told, each with its place.
export type TranscriptEvent = TranscriptItem & {
  event_id: number;
  run_id?: string | null;
  ts: string;
};

export type ServerEvent = Envelope & (
  | { type: "welcome"; v: string; session_state: SessionState }
  | { type: "snapshot"; v: string; event_id: number; session_state: SessionState; run_state: RunState | null; transcript: TranscriptItem[] }
  | { type: "accepted" }
  | { type: "run_status"; run_state: RunState; event_id: number }
  | { type: "approval_pending"; call_id: string; tool_key: string; args_json?: string | null; event_id: number }
  | { type: "approval_decision"; call_id: string; decision: "approve" | "deny_abort" | "deny_continue"; event_id: number }
  | { type: "turn_done"; event_id: number }
  | { type: "error"; code: string; message: string; details?: Record<string, unknown> | null }
  | { type: "heartbeat"; interval_ms: number }
  | { type: "backpressure"; state: "drain" | "ok" }
);

export type ServerMessage = ServerEvent | TranscriptEvent;
