// One conversation: a session's MiniCodex connection, folded. It reconnects with the last seen event, so it misses nothing.
import type { ClientMessage, ServerMessage } from "@wire/minicodex";
import { Conversation } from "../model/conversation";
import type { Message } from "@wire/relay";
import { get, socketAddress } from "../net/http";
import { Line, type LineState } from "../net/line";
import { mayReturn, tower } from "./tower.svelte";
import { uuid } from "../text/ids";
import { toasts } from "./toasts.svelte";

/** The daemon sends a heartbeat every 15 s; the connection counts as lost after three missing ones. */
const SILENCE_MS = 50_000;
const POLICY = 1008;

interface Unsent {
  id: string;
  text: string;
}

/** A message that is sent when the run has ended. The daemon stores it; for a run on another host, which may not support
 * that, this tab does. */
export interface Later {
  text: string;
  here: boolean;
}

export class Talk {
  version = $state(0);
  line = $state<LineState>("connecting");
  unknown = $state(false);
  followUps = $state<Later[]>([]);
  sending = $state.raw<Unsent[]>([]);
  readonly story = new Conversation();
  private readonly socket: Line;
  private readonly unlisten: () => void;
  private due = false;
  private wasActive = false;

  constructor(readonly sessionId: string) {
    this.socket = new Line({
      address: () => socketAddress("/ws/minicodex", { session_id: sessionId }),
      opened: () => this.greet(),
      heard: (frame) => this.hear(frame as ServerMessage),
      changed: (state) => (this.line = state),
      mayReturn: (code) => (this.unknown && code === POLICY ? Promise.resolve("no") : mayReturn()),
      silenceMs: SILENCE_MS,
    });
    this.unlisten = tower.listen(sessionId, (event) => {
      if (this.story.note(event)) this.show();
    });
    void this.readNotes();
  }

  close(): void {
    this.unlisten();
    this.socket.close();
  }

  get isActive(): boolean {
    void this.version;
    return this.story.isActive;
  }

  /** Loads the durations of calls and the decisions from before this connection. */
  private async readNotes(): Promise<void> {
    try {
      const path = `/runs/${encodeURIComponent(this.sessionId)}/messages?include_output=false&limit=500`;
      for (const message of await get<Message[]>(path)) {
        if (typeof message.data !== "object" || message.data === null) continue;
        this.story.note({ type: message.kind, ts: message.ts, run_id: this.sessionId, data: message.data as Record<string, unknown> });
      }
      this.show();
    } catch {
      // The conversation is complete without these facts.
    }
  }

  // Requests

  /** Sends the message again with the same id after a reconnect: the daemon accepts it once. */
  send(text: string): void {
    const unsent = { id: uuid(), text };
    this.sending = [...this.sending, unsent];
    this.offer(unsent);
  }

  /** Sends the message to the active run: an agent reads relay's input between two steps. */
  steer(text: string): boolean {
    return tower.command("run.send_input", this.sessionId, { input_id: uuid(), text, actor: "web" });
  }

  /** Returns false when the message could not be sent. */
  followUp(text: string): boolean {
    const here = !tower.isNode(tower.row(this.sessionId)?.host_id ?? "");
    if (!here && !tower.command("run.send_input", this.sessionId, { input_id: uuid(), text, actor: "web", delivery: "follow_up" })) return false;
    this.followUps.push({ text, here });
    return true;
  }

  abort(): void {
    if (!this.say({ type: "abort", req_id: "abort" })) toasts.say("Not sent: the connection is down.", "error");
  }

  private offer(unsent: Unsent): void {
    this.say({ type: "send", text: unsent.text, client_msg_id: unsent.id, req_id: unsent.id });
  }

  private say(message: ClientMessage): boolean {
    return this.socket.send(message);
  }

  // Events

  private greet(): void {
    const last = this.story.loaded ? this.story.lastEventId : null;
    if (last === null) this.say({ type: "hello", v: "1.0.0", client_capabilities: ["reasoning", "approvals", "replay", "deny_abort"] });
    else this.say({ type: "resume", last_seen_event_id: last });
    for (const unsent of this.sending) this.offer(unsent);
  }

  private hear(frame: ServerMessage): void {
    if (typeof frame !== "object" || frame === null) return;
    const told = this.story.apply(frame);
    if (frame.type === "user_text") {
      const said = this.followUps.findIndex((later) => !later.here && later.text === frame.text);
      if (said >= 0) this.followUps.splice(said, 1);
    }
    switch (told.what) {
      case "gap":
        this.say({ type: "get_snapshot", include_transcript_window: true });
        break;
      case "accepted":
        this.sending = this.sending.filter((unsent) => unsent.id !== told.reqId);
        break;
      case "refused":
        this.refused(told.refusal.code, told.refusal.message, told.refusal.reqId);
        break;
      default:
        break;
    }
    this.goOn();
    this.show();
  }

  private refused(code: string, message: string, reqId: string | null): void {
    const unsent = this.sending.find((one) => one.id === reqId);
    this.sending = this.sending.filter((one) => one !== unsent);
    if (code === "UNKNOWN_SESSION") {
      this.unknown = true;
    } else if (unsent && code === "BUSY") {
      // Another client started a run first, so the message steers that run.
      if (this.steer(unsent.text)) toasts.say("A run is at work already: your message was given to it.");
    } else {
      toasts.say(message, "error");
    }
  }

  /** Sends the next kept message when the run has ended successfully. */
  private goOn(): void {
    const active = this.story.isActive;
    const last = this.story.blocks[this.story.blocks.length - 1];
    const stopped = last?.kind === "notice" && last.code === "ABORTED";
    if (this.wasActive && !active && !stopped && this.story.run?.status === "finished") {
      const next = this.followUps.findIndex((later) => later.here);
      const [later] = next < 0 ? [] : this.followUps.splice(next, 1);
      if (later) this.send(later.text);
    }
    this.wasActive = active;
  }

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
}

/** Drafts by session id: a fork carries the message before which it was forked. */
export const drafts = new Map<string, string>();

/** Creates a session with its first message, and resolves to its id. */
export function begin(query: Record<string, string | null>, text: string): Promise<string> {
  return new Promise((done, failed) => {
    const socket = new WebSocket(socketAddress("/ws/minicodex", query));
    const timer = setTimeout(() => fail("no answer came in time"), 20_000);
    let id: string | null = null;
    const fail = (why: string): void => {
      clearTimeout(timer);
      failed(new Error(why));
      socket.close(1000);
    };
    const finish = (): void => {
      clearTimeout(timer);
      if (id !== null) done(id);
      socket.close(1000);
    };
    socket.onopen = () => socket.send(JSON.stringify({ type: "hello", v: "1.0.0", client_capabilities: [] }));
    socket.onclose = () => fail("the daemon closed the connection; look at its log (`tower logs`)");
    socket.onmessage = (event: MessageEvent<string>) => {
      const frame = JSON.parse(event.data) as ServerMessage;
      if (frame.type === "welcome") {
        id = frame.session_state.session_id;
        if (!text) finish();
        else socket.send(JSON.stringify({ type: "send", text, req_id: "first", client_msg_id: uuid() }));
      } else if (frame.type === "accepted") {
        finish();
      } else if (frame.type === "error") {
        fail(frame.message);
      }
    };
  });
}
