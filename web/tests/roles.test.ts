// What the page offers with each role. The daemon decides; a button that would be refused is not there.
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/svelte";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import App from "../src/App.svelte";
import { covers, ROLES, type Role } from "../src/model/roles";
import { auth } from "../src/state/auth.svelte";
import { tower } from "../src/state/tower.svelte";
import { play, Socket, type Asked } from "./stage";

const PATIENT = { timeout: 10_000 };
const ROW = { id: "sess_1", host_id: "h1", tool: "agent", cwd: "/work", status: "awaiting_approval", started_at: "2026-01-01T00:00:00Z", title: "First", pending_request_id: "q1", pending_prompt: "Run a command" };
const DATA = { request_id: "q1", prompt: "Run a command", op_tool: "run", op_args: { command: "make", always: "allow run make" }, op_args_summary: "make" };

async function opened(role: Role | undefined, hash: string): Promise<Asked[]> {
  const asked = play({
    "GET /auth/me": { name: "ann", token_id: "t", ...(role === undefined ? {} : { role }) },
    "GET /health": { name: "switchtower", version: "9.9.9", features: ["rename", "delete", "fork"] },
    "GET /runs": [ROW],
    "GET /hosts": [{ id: "h1", name: "big", last_seen_at: null, online: true, state: "approved", is_this_daemon: true }],
    "GET /runs/sess_1": ROW,
    "GET /runs/sess_1/messages": [{ id: 1, seq: 1, ts: "2026-01-01T00:00:01Z", role: "system", kind: "run.permission_requested", actor: null, request_id: "q1", text: "", data: DATA }],
    "GET /users": [{ name: "bob", role: "viewer", created_at: "2026-01-01T00:00:00Z", last_login_at: null }],
    "PUT /users/bob/role": 204,
  });
  window.location.hash = hash;
  window.dispatchEvent(new HashChangeEvent("hashchange"));
  render(App);
  await waitFor(() => Socket.to("/ws/app"), PATIENT);
  Socket.to("/ws/app").open();
  await waitFor(() => expect(tower.loaded).toBe(true), PATIENT);
  return asked;
}

beforeEach(() => {
  Element.prototype.scrollIntoView = () => {};
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: () => {} }));
});

afterEach(() => {
  cleanup();
  tower.stop();
  auth.status = "checking";
  vi.unstubAllGlobals();
  localStorage.clear();
});

it("orders the roles, and takes a daemon that tells none for one of before", () => {
  expect(ROLES.filter((role) => covers(role, "operator"))).toEqual(["operator", "admin"]);
  expect(covers("root", "viewer")).toBe(false);
  expect(covers(undefined, "admin")).toBe(true);
});

it.each(ROLES)("offers a %s what that role may do", async (role) => {
  await opened(role, "#/inbox");
  expect((await screen.findByTestId("role", undefined, PATIENT)).textContent).toContain(role);
  const approve = (await screen.findByRole("button", { name: /^Approve/ }, PATIENT)) as HTMLButtonElement;
  expect((screen.getByRole("button", { name: /^Deny n/ }) as HTMLButtonElement).disabled).toBe(role === "viewer");
  if (role === "viewer") {
    expect(approve.disabled).toBe(true);
    expect(screen.getByTestId("may-not")).toBeTruthy();
    await fireEvent.keyDown(screen.getByTestId("decision"), { key: "n" });
    expect(Socket.to("/ws/app").sent.filter((frame) => String(frame["type"]).startsWith("run.permission"))).toEqual([]);
  }
  expect(screen.queryByRole("button", { name: /^Always in this session/ }) !== null).toBe(covers(role, "operator"));
  expect(screen.queryByTestId("new-session") !== null).toBe(covers(role, "operator"));
  expect(screen.queryByRole("link", { name: "Admin" }) !== null).toBe(role === "admin");
}, 30_000);

it.each(["viewer", "approver"] as const)("lets a %s read a conversation and not write to it", async (role) => {
  await opened(role, "#/s/sess_1");
  await waitFor(() => Socket.to("/ws/minicodex"), PATIENT);
  const talk = Socket.to("/ws/minicodex");
  talk.open();
  const state = { session_id: "sess_1", version: "1.0.0", capabilities: [], run_counter: 0 };
  talk.say({ type: "welcome", v: "1.0.0", session_state: state });
  talk.say({ type: "snapshot", v: "1.0.0", session_state: state, run_state: null, transcript: [], event_id: 1 });
  expect((await screen.findByTestId("may-not-send", undefined, PATIENT)).textContent).toContain(role);
  expect(screen.queryByTestId("composer")).toBeNull();
  await fireEvent.click(screen.getByRole("button", { name: "More" }));
  expect(screen.queryByRole("button", { name: /Delete|Rename|Stop/ })).toBeNull();
}, 30_000);

it.each(["#/new", "#/admin/users"])("shows %s to no viewer", async (hash) => {
  await opened("viewer", hash);
  expect(await screen.findByText("Your role does not allow this", undefined, PATIENT)).toBeTruthy();
}, 30_000);

it("gives a user another role", async () => {
  const asked = await opened("admin", "#/admin/users");
  const select = (await screen.findByLabelText("Role of bob", undefined, PATIENT)) as HTMLSelectElement;
  expect(select.value).toBe("viewer");
  await fireEvent.change(select, { target: { value: "approver" } });
  await waitFor(() => expect(asked.find((one) => one.method === "PUT")?.body).toEqual({ role: "approver" }), PATIENT);
}, 30_000);
