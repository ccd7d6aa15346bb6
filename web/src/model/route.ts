// The current view as the fragment of the URL (the part after `#`), which the daemon never sees. Pure.

export type Tab = "main" | "files" | "changes";

export type Route =
  | { page: "sessions" }
  | { page: "session"; id: string; tab: Tab }
  | { page: "new" }
  | { page: "inbox" }
  | { page: "hosts"; id: string | null }
  | { page: "admin"; tab: "users" | "tokens" | "audit" | "health" }
  | { page: "settings" };

const TABS: readonly string[] = ["main", "files", "changes"];
const ADMIN: readonly string[] = ["users", "tokens", "audit", "health"];

export function parse(hash: string): Route {
  const parts = hash
    .replace(/^#?\/?/, "")
    .split("/")
    .map(decoded);
  const [page, first, second] = parts;
  switch (page) {
    case "s":
      return first ? { page: "session", id: first, tab: TABS.includes(second ?? "") ? (second as Tab) : "main" } : { page: "sessions" };
    case "new":
    case "inbox":
    case "settings":
      return { page };
    case "hosts":
      return { page: "hosts", id: first || null };
    case "admin":
      return { page: "admin", tab: ADMIN.includes(first ?? "") ? (first as "users") : "health" };
    default:
      return { page: "sessions" };
  }
}

export function spell(route: Route): string {
  switch (route.page) {
    case "sessions":
      return "#/";
    case "session":
      return `#/s/${encodeURIComponent(route.id)}${route.tab === "main" ? "" : `/${route.tab}`}`;
    case "hosts":
      return route.id === null ? "#/hosts" : `#/hosts/${encodeURIComponent(route.id)}`;
    case "admin":
      return `#/admin/${route.tab}`;
    default:
      return `#/${route.page}`;
  }
}

/** Returns the token of a first visit, and the URL without it. */
export function firstToken(address: string): { token: string; rest: string } | null {
  const url = new URL(address);
  const inQuery = url.searchParams.get("token");
  const inHash = /^#(?:.*&)?token=([^&]+)/.exec(url.hash)?.[1];
  const token = inQuery ?? (inHash === undefined ? null : decoded(inHash));
  if (!token) return null;
  url.searchParams.delete("token");
  if (inHash !== undefined) url.hash = "";
  return { token, rest: url.pathname + url.search + url.hash };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
