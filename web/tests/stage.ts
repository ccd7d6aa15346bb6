// The page's two ways to the daemon, played: its WebSockets and its HTTP. Everything of ours runs as it is.
import { vi } from "vitest";

export class Socket {
  static all: Socket[] = [];
  static readonly OPEN = 1;
  readonly OPEN = 1;
  readyState = 0;
  readonly sent: Record<string, unknown>[] = [];
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;

  constructor(readonly url: string) {
    Socket.all.push(this);
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text) as Record<string, unknown>);
  }

  close(code = 1000): void {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.onclose?.({ code });
  }

  open(): void {
    this.readyState = 1;
    this.onopen?.();
  }

  say(frame: unknown): void {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }

  static to(path: string): Socket {
    const found = Socket.all.findLast((socket) => socket.url.includes(path) && socket.readyState !== 3);
    if (!found) throw new Error(`nobody has dialled ${path}`);
    return found;
  }
}

export type Answers = Record<string, unknown>;

export interface Asked {
  method: string;
  path: string;
  headers: Record<string, string>;
  body: unknown;
}

/** `GET /path` to what is answered; a number is a status without a body. Gives what was asked. */
export function play(answers: Answers): Asked[] {
  const asked: Asked[] = [];
  Socket.all = [];
  vi.stubGlobal("WebSocket", Socket);
  vi.stubGlobal("requestAnimationFrame", (act: () => void) => setTimeout(act, 0));
  vi.stubGlobal(
    "ResizeObserver",
    class {
      observe(): void {}
      unobserve(): void {}
      disconnect(): void {}
    },
  );
  vi.stubGlobal("fetch", (path: string, init: { method: string; headers: Record<string, string>; body: string | null }) => {
    asked.push({ method: init.method, path, headers: init.headers, body: init.body ? (JSON.parse(init.body) as unknown) : null });
    const answer = answers[`${init.method} ${path.split("?")[0]}`];
    if (answer === undefined) return Promise.resolve(new Response('{"error":"not found"}', { status: 404 }));
    if (typeof answer === "number") return Promise.resolve(new Response(answer === 204 ? null : '{"error":"refused"}', { status: answer }));
    return Promise.resolve(new Response(JSON.stringify(answer), { status: 200, headers: { "content-type": "application/json" } }));
  });
  return asked;
}
