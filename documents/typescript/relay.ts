// Made from the wire types by `make schemas`; not to be edited.
// Times are RFC 3339. What is absent was not said, and fields may be added: ignore those that you do not know.

// HTTP, and the answers to calls

export interface RowUsage {
  input_tokens: number;
  output_tokens: number;
  cost: number | null;
  context_used: number;
  context_window: number | null;
}

export interface RowCriterion {
  id: string;
  passed: boolean;
}

export interface RunRow {
  id: string;
  host_id: string;
  tool: string;
  cwd: string;
  status: "awaiting_approval" | "awaiting_input" | "exited" | "lost" | "running";
  started_at: string;
  last_active_at?: string;
  pending_request_id?: string;
  pending_reason?: string;
  pending_prompt?: string;
  pending_op_tool?: string;
  pending_op_args_summary?: string;
  ended_at?: string;
  exit_code?: number;
  title?: string;
  engine?: string;
  provider?: string;
  model?: string;
  preset?: string;
  policy?: string;
  sandbox?: string;
  child_of?: string;
  usage?: RowUsage;
  acceptance?: RowCriterion[];
}

export interface Message {
  id: number;
  seq: number | null;
  ts: string;
  role: "assistant" | "system" | "user";
  kind: string;
  actor: string | null;
  request_id: string | null;
  text: string;
  data?: unknown;
}

export interface HostRow {
  id: string;
  name: string;
  last_seen_at: string | null;
  online: boolean;
  state?: string;
  first_seen_at?: string | null;
  is_this_daemon?: boolean;
  is_node?: boolean;
}

export interface Response {
  request_id: string;
  ok: boolean;
  rpc_type: string;
  result?: unknown;
  error?: string | null;
}

export interface Login {
  username: string;
  password: string;
}

// The data of what apps send

export interface SendInput {
  input_id: string;
  text: string;
  actor?: string | null;
  delivery?: "follow_up" | "steer";
}

export interface SendStdin {
  text?: string;
  data?: string | null;
  input_id?: string | null;
  actor?: string | null;
}

export interface Resize {
  cols: number;
  rows: number;
}

export interface Stop {
  signal?: "int" | "kill" | "term" | null;
  actor?: string | null;
}

export interface Decide {
  request_id: string;
  actor?: string | null;
  decision?: string | null;
  reason?: string | null;
}

export interface Subscribe {
  replace?: boolean;
  include_output?: boolean;
  after_id?: number | null;
}

export interface FsRead {
  request_id: string;
  path: string;
  actor?: string | null;
}

export interface FsSearch {
  request_id: string;
  q: string;
  actor?: string | null;
}

export interface FsList {
  request_id: string;
  path?: string | null;
  actor?: string | null;
}

export interface FsWrite {
  request_id: string;
  path: string;
  content: string;
  actor?: string | null;
}

export interface Bash {
  request_id: string;
  cmd: string;
  actor?: string | null;
}

export interface GitStatus {
  request_id: string;
  actor?: string | null;
}

export interface GitDiff {
  request_id: string;
  path?: string | null;
  actor?: string | null;
}

export interface RunsList {
  request_id: string;
  actor?: string | null;
}

export interface RunStop {
  request_id: string;
  signal?: "int" | "kill" | "term" | null;
  actor?: string | null;
}

export interface RunStart {
  request_id: string;
  cmd: string;
  tool?: string;
  host_id?: string | null;
  cwd?: string | null;
  actor?: string | null;
  cols?: number | null;
  rows?: number | null;
}

export interface HostLook {
  request_id: string;
  host_id?: string | null;
  actor?: string | null;
}

export interface LogsTail {
  request_id: string;
  host_id?: string | null;
  lines?: number | null;
  max_bytes?: number | null;
  actor?: string | null;
}

// App → server

export type RunCommand =
  | { type: "run.send_input"; run_id: string; data: SendInput }
  | { type: "run.send_stdin"; run_id: string; data: SendStdin }
  | { type: "run.resize"; run_id: string; data: Resize }
  | { type: "run.stop"; run_id: string; data: Stop }
  | { type: "run.permission.approve"; run_id: string; data: Decide }
  | { type: "run.permission.deny"; run_id: string; data: Decide }
  | { type: "run.subscribe"; run_id: string; data: Subscribe }
  | { type: "run.unsubscribe"; run_id: string; data: Subscribe };

export type RunRpc =
  | { type: "rpc.fs.read"; run_id: string; data: FsRead }
  | { type: "rpc.fs.search"; run_id: string; data: FsSearch }
  | { type: "rpc.fs.list"; run_id: string; data: FsList }
  | { type: "rpc.fs.write"; run_id: string; data: FsWrite }
  | { type: "rpc.bash"; run_id: string; data: Bash }
  | { type: "rpc.git.status"; run_id: string; data: GitStatus }
  | { type: "rpc.git.diff"; run_id: string; data: GitDiff }
  | { type: "rpc.runs.list"; run_id: string; data: RunsList }
  | { type: "rpc.run.stop"; run_id: string; data: RunStop };

export type HostRpc =
  | { type: "rpc.run.start"; run_id?: string; data: RunStart }
  | { type: "rpc.host.info"; run_id?: string; data: HostLook }
  | { type: "rpc.host.doctor"; run_id?: string; data: HostLook }
  | { type: "rpc.host.capabilities"; run_id?: string; data: HostLook }
  | { type: "rpc.host.logs.tail"; run_id?: string; data: LogsTail };

export type AppCommand = RunCommand | RunRpc | HostRpc;

// Server → app. `id` is the place in the hub's journal, for paging; what is no part of a run has none.
export interface AppEvent {
  type: string;
  ts: string;
  host_id?: string;
  run_id?: string;
  seq?: number;
  id?: number;
  data: Record<string, unknown>;
}
