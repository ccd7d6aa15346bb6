// A WebSocket that reconnects. The delay grows after each failure; it retries at once when the browser reports that the network
// is back. It does not interpret the frames.

export type LineState = "connecting" | "open" | "broken" | "closed";

export interface LineParts {
  address: () => string;
  opened: (line: Line) => void;
  heard: (frame: unknown) => void;
  changed?: (state: LineState) => void;
  /** Decides, after each break and from the close code, whether to retry. `later`: the daemon is not reachable yet. */
  mayReturn?: (code: number) => Promise<"yes" | "later" | "no">;
  /** Milliseconds of silence after which the connection counts as broken; 0 relies on the browser. */
  silenceMs?: number;
}

const FIRST = 400;
const LONGEST = 15_000;

/** Returns a random delay between half and all of an exponential backoff. */
export function pause(attempt: number, random: number): number {
  return Math.min(LONGEST, FIRST * 2 ** Math.min(attempt, 10)) * (0.5 + random / 2);
}

export class Line {
  state: LineState = "connecting";
  private socket: WebSocket | null = null;
  private attempt = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private watch: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly parts: LineParts) {
    window.addEventListener("online", this.hurry);
    document.addEventListener("visibilitychange", this.hurry);
    this.dial();
  }

  send(frame: unknown): boolean {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }

  close(): void {
    window.removeEventListener("online", this.hurry);
    document.removeEventListener("visibilitychange", this.hurry);
    clearTimeout(this.timer);
    clearTimeout(this.watch);
    this.become("closed");
    const socket = this.socket;
    this.socket = null;
    socket?.close(1000);
  }

  /** Retries now instead of later. */
  readonly hurry = (): void => {
    if (this.state === "broken" && !document.hidden) {
      clearTimeout(this.timer);
      this.attempt = Math.min(this.attempt, 2);
      this.dial();
    }
  };

  private dial(): void {
    this.become("connecting");
    let socket: WebSocket;
    try {
      socket = new WebSocket(this.parts.address());
    } catch {
      this.broke(null, 1006);
      return;
    }
    this.socket = socket;
    socket.onopen = () => {
      if (this.socket !== socket) return;
      this.become("open");
      this.listen(socket);
      this.parts.opened(this);
    };
    socket.onmessage = (event: MessageEvent<unknown>) => {
      if (this.socket !== socket || typeof event.data !== "string") return;
      this.attempt = 0;
      this.listen(socket);
      let frame: unknown;
      try {
        frame = JSON.parse(event.data);
      } catch {
        return; // not a frame; the daemon never sends this
      }
      this.parts.heard(frame);
    };
    socket.onclose = (event) => this.broke(socket, event.code);
  }

  private listen(socket: WebSocket): void {
    const silence = this.parts.silenceMs ?? 0;
    if (silence === 0) return;
    clearTimeout(this.watch);
    this.watch = setTimeout(() => {
      socket.close(4000);
      this.broke(socket, 4000); // a dead connection does not answer a close either
    }, silence);
  }

  private broke(socket: WebSocket | null, code: number): void {
    if (this.state === "closed" || (socket !== null && this.socket !== socket)) return;
    clearTimeout(this.watch);
    this.socket = null;
    this.become("broken");
    this.wait(code);
  }

  private wait(code: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(
      () => {
        const ask = this.parts.mayReturn?.(code) ?? Promise.resolve("yes" as const);
        void ask.then((may) => {
          if (this.state !== "broken") return;
          if (may === "yes") this.dial();
          else if (may === "later") this.wait(code);
          else this.close();
        });
      },
      pause(this.attempt++, Math.random()),
    );
  }

  private become(state: LineState): void {
    if (this.state === state && state !== "connecting") return;
    this.state = state;
    this.parts.changed?.(state);
  }
}
