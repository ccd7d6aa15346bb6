// Formats times and sizes. The current time is an argument.

export function ago(then: string | null | undefined, now: number): string {
  const at = then ? Date.parse(then) : NaN;
  if (Number.isNaN(at)) return "";
  const seconds = Math.max(0, Math.round((now - at) / 1000));
  if (seconds < 10) return "now";
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

export function left(until: string, now: number): string {
  const seconds = Math.max(0, Math.ceil((Date.parse(until) - now) / 1000));
  if (Number.isNaN(seconds)) return "";
  if (seconds >= 172_800) return `${Math.floor(seconds / 86_400)} d`;
  if (seconds >= 3600) {
    const minutes = Math.floor((seconds % 3600) / 60);
    return `${Math.floor(seconds / 3600)} h${minutes ? ` ${minutes} min` : ""}`;
  }
  if (seconds >= 60) return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} min`;
  return `${seconds} s`;
}

export function took(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export function bytes(count: number): string {
  if (count < 1024) return `${count} B`;
  if (count < 1024 ** 2) return `${(count / 1024).toFixed(1)} KB`;
  if (count < 1024 ** 3) return `${(count / 1024 ** 2).toFixed(1)} MB`;
  return `${(count / 1024 ** 3).toFixed(1)} GB`;
}

export function count(many: number): string {
  if (many < 10_000) return String(Math.round(many));
  if (many < 1_000_000) return `${(many / 1000).toFixed(many < 100_000 ? 1 : 0)}k`;
  return `${(many / 1_000_000).toFixed(1)}M`;
}

const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export function date(then: string | null | undefined): string {
  const at = then ? Date.parse(then) : NaN;
  return Number.isNaN(at) ? "" : clock.format(at);
}

/** Shortens a long folder to its last parts. */
export function shortPath(path: string): string {
  const parts = path.replace(/^\/(?:home|Users)\/[^/]+/, "~").split("/");
  return parts.length > 4 ? `…/${parts.slice(-2).join("/")}` : parts.join("/");
}
