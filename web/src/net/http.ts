// Requests to the daemon's HTTP API. A session cookie is enough; without one, the token is kept here, in memory only.

export class HttpError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint: string | null = null,
  ) {
    super(message);
  }
}

/** The daemon did not answer at all. */
export class Away extends Error {
  constructor() {
    super("The daemon does not answer");
  }
}

let bearer: string | null = null;
let refused: () => void = () => {};

export function setBearer(token: string | null): void {
  bearer = token;
}

export function whenRefused(act: () => void): void {
  refused = act;
}

export async function request(method: string, path: string, body?: unknown, accept = "application/json"): Promise<Response> {
  const headers: Record<string, string> = { Accept: accept };
  if (bearer !== null) headers["Authorization"] = `Bearer ${bearer}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer: Response;
  try {
    answer = await fetch(path, {
      method,
      headers,
      body: body === undefined ? null : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
    });
  } catch {
    throw new Away();
  }
  if (answer.ok) return answer;
  if (answer.status === 502 || answer.status === 504) {
    const told = await problem(answer);
    if (told === null) throw new Away(); // the answer came from a proxy, not from the daemon
    throw new HttpError(answer.status, told.error, told.hint);
  }
  const told = await problem(answer);
  if (answer.status === 401 && !path.startsWith("/auth/")) refused();
  throw new HttpError(answer.status, told?.error ?? `HTTP ${answer.status}`, told?.hint ?? null);
}

async function problem(answer: Response): Promise<{ error: string; hint: string | null } | null> {
  try {
    const said: unknown = await answer.json();
    if (typeof said === "object" && said !== null) {
      const { error, hint } = said as Record<string, unknown>;
      if (typeof error === "string") return { error, hint: typeof hint === "string" ? hint : null };
    }
  } catch {
    // not an error body of the daemon
  }
  return null;
}

export async function get<T>(path: string): Promise<T> {
  return (await (await request("GET", path)).json()) as T;
}

export async function send<T = null>(method: string, path: string, body?: unknown): Promise<T> {
  const answer = await request(method, path, body);
  return (answer.status === 204 ? null : await answer.json()) as T;
}

/** Builds the URL of a WebSocket. It contains the token only if there is no cookie. */
export function socketAddress(path: string, query: Record<string, string | null | undefined> = {}): string {
  const url = new URL(path, window.location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value);
  if (bearer !== null) url.searchParams.set("token", bearer);
  return url.href;
}

export function explained(failure: unknown): string {
  if (failure instanceof HttpError) return failure.hint ? `${failure.message}; hint: ${failure.hint}` : failure.message;
  return failure instanceof Error ? failure.message : String(failure);
}
