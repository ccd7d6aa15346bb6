// The state from relay: all runs of all hosts, live, and all pending approvals. One connection to `/ws/app` serves the whole
// page. After a break the list is loaded again, so that no missed event leaves it stale.
import type { AppEvent, HostRow, Message, Response as Answer } from "@wire/relay";
import * as approvals from "../model/approvals";
import * as runs from "../model/runs";
import * as http from "../net/http";
import { Line, type LineState } from "../net/line";
import { auth } from "./auth.svelte";
import { uuid } from "../text/ids";
import { toasts } from "./toasts.svelte";

const CALL_MS = 65_000;
const QUIET_MS = 45_000;
const HOSTS_MS = 15_000;

type Listener = (event: AppEvent) => void;

interface Call {
  done: (result: unknown) => void;
  failed: (why: Error) => void;
  timer: ReturnType<typeof setTimeout>;
}

class Tower {
  /** Increases when the state below has changed; views read it to update. */
  version = $state(0);
  hosts = $state.raw<HostRow[]>([]);
  line = $state<LineState>("connecting");
  loaded = $state(false);
  /** The time since which a daemon that was connected has been unreachable. */
  awaySince = $state<number | null>(null);
  now = $state(Date.now());
  private runs = runs.empty();
  private socket: Line | null = null;
  private readonly calls = new Map<string, Call>();
  private readonly listeners = new Map<string, Set<Listener>>();
  private readonly rereads = new Set<string>();
  private due = false;
  private heardAt = 0;
  private timers: ReturnType<typeof setInterval>[] = [];

  start(): void {
    if (this.socket) return;
    this.socket = new Line({
      address: () => http.socketAddress("/ws/app"),
      opened: () => void this.reload(),
      heard: (frame) => this.hear(frame),
      changed: (state) => this.lineChanged(state),
      mayReturn: () => mayReturn(),
    });
    this.timers = [
      setInterval(() => (this.now = Date.now()), 1000),
      // Relay has no event for every change: a session that was renamed elsewhere is only found by this periodic reload.
      setInterval(() => void (this.line === "open" && !document.hidden ? this.reload() : this.readHosts()), HOSTS_MS),
      setInterval(() => void this.probe(), QUIET_MS / 3),
    ];
  }

  stop(): void {
    this.socket?.close();
    this.socket = null;
    for (const timer of this.timers) clearInterval(timer);
    for (const [id, call] of this.calls) {
      clearTimeout(call.timer);
      call.failed(new Error("logged out"));
      this.calls.delete(id);
    }
    this.runs = runs.empty();
    this.hosts = [];
    this.loaded = false;
    this.awaySince = null;
    this.version++;
  }

  hurry(): void {
    this.socket?.hurry();
  }

  // State for the views

  get rows(): runs.Row[] {
    void this.version;
    return [...this.runs.rows.values()];
  }

  row(runId: string): runs.Row | null {
    void this.version;
    return this.runs.rows.get(runId) ?? null;
  }

  get open(): approvals.Approval[] {
    void this.version;
    return runs.openQuestions(this.runs).sort((one, other) => one.askedAt.localeCompare(other.askedAt));
  }

  get decided(): approvals.Approval[] {
    void this.version;
    return [...this.runs.questions.values()]
      .filter((question) => question.decided)
      .sort((one, other) => (other.decided?.at ?? "").localeCompare(one.decided?.at ?? ""));
  }

  questionsOf(runId: string): approvals.Approval[] {
    void this.version;
    return [...this.runs.questions.values()].filter((question) => question.runId === runId);
  }

  hostName(hostId: string): string {
    return this.hosts.find((host) => host.id === hostId)?.name ?? hostId;
  }

  get ownHost(): HostRow | null {
    return this.hosts.find((host) => host.is_this_daemon) ?? null;
  }

  /** Returns whether a host is a node of this cluster, like the daemon of this connection. Sessions of a node belong to the
   * cluster, whichever node the page is connected to. */
  isNode(hostId: string): boolean {
    return this.hosts.some((host: HostRow) => host.id === hostId && (host.is_this_daemon === true || host.is_node === true));
  }

  listen(runId: string, listener: Listener): () => void {
    const set = this.listeners.get(runId) ?? new Set();
    this.listeners.set(runId, set);
    set.add(listener);
    return () => {
      set.delete(listener);
      if (set.size === 0) this.listeners.delete(runId);
    };
  }

  // Requests

  command(type: string, runId: string, data: Record<string, unknown>): boolean {
    const sent = this.socket?.send({ type, run_id: runId, data }) ?? false;
    if (!sent) toasts.say("Not sent: the connection is down. Try again when it is back.", "error");
    return sent;
  }

  decide(question: approvals.Approval, verdict: approvals.Verdict): boolean {
    const yes = verdict === "approve" || verdict === "approve_for_session";
    return this.command(yes ? "run.permission.approve" : "run.permission.deny", question.runId, {
      request_id: question.requestId,
      actor: "web",
      decision: verdict,
    });
  }

  call<T>(type: string, target: { runId?: string; hostId?: string }, data: Record<string, unknown> = {}, waitMs = CALL_MS): Promise<T> {
    const requestId = uuid();
    const frame: Record<string, unknown> = { type, data: { request_id: requestId, actor: "web", ...data } };
    if (target.runId !== undefined) frame["run_id"] = target.runId;
    if (target.hostId !== undefined) (frame["data"] as Record<string, unknown>)["host_id"] = target.hostId;
    return new Promise<T>((done, failed) => {
      if (!this.socket?.send(frame)) {
        failed(new Error("the connection is down; it is being made again"));
        return;
      }
      const timer = setTimeout(() => {
        this.calls.delete(requestId);
        failed(new Error("no answer came in time"));
      }, waitMs);
      this.calls.set(requestId, { done: done as (result: unknown) => void, failed, timer });
    });
  }

  async refresh(runId: string): Promise<void> {
    try {
      const row = await http.get<runs.Row>(`/runs/${encodeURIComponent(runId)}`);
      this.runs.rows.set(runId, row);
      const asked = approvals.fromRow(row);
      if (asked) {
        const key = runs.questionKey(runId, asked.requestId);
        if (!this.runs.questions.has(key)) this.runs.questions.set(key, asked);
      }
      this.version++;
      await this.readBriefs();
    } catch (failure) {
      if (failure instanceof http.HttpError && failure.status === 404) {
        this.runs.rows.delete(runId);
        this.version++;
      }
    }
  }

  async readHosts(): Promise<void> {
    if (auth.status !== "in") return;
    try {
      this.hosts = await http.get<HostRow[]>("/hosts");
    } catch {
      // The connection state shows that the daemon is away.
    }
  }

  // Events

  private async reload(): Promise<void> {
    try {
      const [rows] = await Promise.all([http.get<runs.Row[]>("/runs"), this.readHosts()]);
      this.runs = runs.listed(this.runs, rows);
      this.loaded = true;
      this.version++;
      await this.readBriefs();
    } catch (failure) {
      if (!(failure instanceof http.Away)) toasts.say(`The list of sessions could not be read: ${http.explained(failure)}`, "error");
    }
  }

  private lineChanged(state: LineState): void {
    this.line = state;
    if (state === "open") this.awaySince = null;
    else if (state === "broken") this.awaySince ??= Date.now();
    if (state === "broken") {
      for (const [id, call] of this.calls) {
        clearTimeout(call.timer);
        this.calls.delete(id);
        call.failed(new Error("the connection broke before the answer came"));
      }
    }
    this.heardAt = Date.now();
  }

  /** The daemon sends nothing while nothing happens; this checks whether it still answers. */
  private async probe(): Promise<void> {
    if (this.line !== "open" || document.hidden || Date.now() - this.heardAt < QUIET_MS) return;
    this.heardAt = Date.now();
    try {
      await http.get("/health");
    } catch {
      const old = this.socket;
      if (old) {
        old.close();
        this.socket = null;
        for (const timer of this.timers) clearInterval(timer);
        this.awaySince = Date.now();
        this.start();
      }
    }
  }

  private hear(frame: unknown): void {
    this.heardAt = Date.now();
    if (typeof frame !== "object" || frame === null) return;
    const event = frame as AppEvent;
    if (typeof event.type !== "string" || typeof event.data !== "object" || event.data === null) return;
    if (event.type === "rpc.response") {
      this.answer(event.data as unknown as Answer);
      return;
    }
    if (event.type === "run.error" || event.type === "error") {
      toasts.say(refusal(event), "error");
      if (event.run_id) this.reread(event.run_id);
      return;
    }
    if (!event.run_id) return;
    for (const listener of this.listeners.get(event.run_id) ?? []) listener(event);
    if (runs.fold(this.runs, event)) this.reread(event.run_id);
    if (event.type === "run.permission_requested") {
      this.asked(event);
      this.readPendingSoon();
    }
    this.show();
  }

  /** Receives events that need the user's attention outside of the page. */
  asked: (event: AppEvent) => void = () => {};

  private answer(said: Answer): void {
    const call = this.calls.get(said.request_id);
    if (!call) return;
    this.calls.delete(said.request_id);
    clearTimeout(call.timer);
    if (said.ok) call.done(said.result);
    else call.failed(new Error(said.error ?? "failed"));
  }

  /** Updates the views at most once per frame, however many events arrive. */
  private show(): void {
    if (this.due) return;
    this.due = true;
    const done = (): void => {
      this.due = false;
      this.version++;
    };
    if (document.hidden) setTimeout(done, 200);
    else requestAnimationFrame(done);
  }

  private reread(runId: string): void {
    if (this.rereads.has(runId)) return;
    this.rereads.add(runId);
    setTimeout(() => {
      this.rereads.delete(runId);
      void this.refresh(runId);
    }, 300);
  }

  private pendingDue = false;

  private readPendingSoon(): void {
    if (this.pendingDue || !auth.has("approvals")) return;
    this.pendingDue = true;
    setTimeout(() => {
      this.pendingDue = false;
      void this.readPending();
    }, 50);
  }

  /** Loads all pending approvals in full, each with its deadline and its call. */
  private async readPending(): Promise<void> {
    try {
      for (const pending of await http.get<approvals.Pending[]>("/approvals")) {
        const key = runs.questionKey(pending.run_id, pending.request_id);
        const before = this.runs.questions.get(key) ?? null;
        if (before?.decided) continue;
        const askedAt = this.runs.rows.get(pending.run_id)?.last_active_at ?? new Date().toISOString();
        const whole = approvals.fromPending(pending, before, askedAt);
        if (whole) this.runs.questions.set(key, whole);
      }
      this.version++;
    } catch {
      // The approvals from the events stay visible.
    }
  }

  /** Loads the approvals of which only the run list's summary is known. */
  private async readBriefs(): Promise<void> {
    if (auth.has("approvals")) await this.readPending();
    for (const question of runs.openQuestions(this.runs).filter((open) => open.brief)) {
      try {
        const path = `/runs/${encodeURIComponent(question.runId)}/messages?include_output=false&limit=100`;
        const told = await http.get<Message[]>(path);
        for (const message of told) {
          const whole = approvals.fromMessage(question.runId, message);
          const key = whole ? runs.questionKey(question.runId, whole.requestId) : "";
          const known = this.runs.questions.get(key);
          // The approval may have been decided while it was loaded.
          if (whole && known?.brief) this.runs.questions.set(key, { ...whole, decided: known.decided });
        }
        this.version++;
      } catch {
        // The summaries from the list stay visible.
      }
    }
  }
}

async function mayReturn(): Promise<"yes" | "later" | "no"> {
  if (await auth.look()) return "yes";
  return auth.status === "out" ? "no" : "later";
}

const WORDS: Record<string, string> = {
  "run.permission.approve": "Approving",
  "run.permission.deny": "Denying",
  "run.send_input": "Sending",
  "run.send_stdin": "Typing",
  "run.stop": "Stopping",
  "run.resize": "Resizing",
};

function refusal(event: AppEvent): string {
  const command = typeof event.data["command"] === "string" ? (WORDS[event.data["command"]] ?? event.data["command"]) : "The request";
  return `${command} was refused: ${typeof event.data["error"] === "string" ? event.data["error"] : "no reason was given"}`;
}

export const tower = new Tower();
export { mayReturn };
