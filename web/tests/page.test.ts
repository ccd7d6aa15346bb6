// The page as somebody uses it, against a daemon that is played at its two doors.
import { cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/svelte";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import App from "../src/App.svelte";
import { auth } from "../src/state/auth.svelte";
import { tower } from "../src/state/tower.svelte";
import { PAYLOADS } from "./payloads";
import { play, Socket, type Answers } from "./stage";

const HOST = { id: "h1", name: "big", last_seen_at: null, online: true, state: "approved", is_this_daemon: true };
const ROW = { id: "sess_1", host_id: "h1", tool: "agent", cwd: "/work", status: "awaiting_input", started_at: "2026-01-01T00:00:00Z", title: "First" };
const ASKS = { ...ROW, id: "sess_2", title: "Second", status: "awaiting_approval", pending_request_id: "q1", pending_prompt: "Run a command", pending_op_args_summary: "make" };
const STATE = { session_id: "sess_1", version: "1.0.0", capabilities: [], run_counter: 0 };
const RUN = { run_id: "01a1e3da-8b2c-8669-3200-c69a3a20800f", started_at: "2026-01-01T00:00:00Z", pending_approvals: [] };
const QUESTION = {
  type: "run.permission_requested",
  ts: "2026-01-01T00:00:01Z",
  run_id: "sess_2",
  data: { request_id: "q1", prompt: "Run a command", op_tool: "run", op_args: { command: "make deploy", reason: "it runs a command", always: "allow run make deploy" }, op_args_summary: "make" },
};

function answers(more: Answers = {}): Answers {
  return {
    "GET /auth/me": { name: "owner", token_id: "t" },
    "GET /health": { name: "switchtower", version: "9.9.9", features: [] },
    "GET /runs": [ROW, ASKS],
    "GET /hosts": [HOST],
    "GET /runs/sess_1": ROW,
    "GET /runs/sess_2": ASKS,
    "GET /runs/sess_1/messages": [],
    "GET /runs/sess_2/messages": [{ id: 1, seq: 1, ts: QUESTION.ts, role: "system", kind: QUESTION.type, actor: null, request_id: "q1", text: "", data: QUESTION.data }],
    ...more,
  };
}

async function opened(hash = "#/"): Promise<Socket> {
  window.location.hash = hash;
  window.dispatchEvent(new HashChangeEvent("hashchange"));
  render(App);
  await waitFor(() => Socket.to("/ws/app"));
  const app = Socket.to("/ws/app");
  app.open();
  await waitFor(() => expect(tower.loaded).toBe(true));
  return app;
}

beforeEach(() => {
  window.history.replaceState(null, "", "/");
  Element.prototype.scrollIntoView = () => {};
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: () => {} }));
  HTMLDialogElement.prototype.showModal = function (this: HTMLDialogElement) {
    this.open = true;
  };
});

afterEach(() => {
  cleanup();
  tower.stop();
  auth.status = "checking";
  vi.unstubAllGlobals();
  localStorage.clear();
});

describe("several nodes", () => {
  const BARN = { ...HOST, id: "h2", name: "barn", is_this_daemon: false, is_node: true };
  const SHED = { ...HOST, id: "h3", name: "shed", is_this_daemon: false };

  it("lists sessions under the node that has them", async () => {
    play(answers({ "GET /hosts": [HOST, BARN], "GET /runs": [ROW, { ...ROW, id: "sess_3", host_id: "h2", title: "Third" }] }));
    await opened();
    const there = await screen.findByRole("region", { name: "Sessions on barn" });
    expect(within(there).getByText("Third")).toBeTruthy();
    expect(within(there).getByText("node")).toBeTruthy();
    expect(within(screen.getByRole("region", { name: "Sessions on big" })).queryByText("node")).toBeNull();
  });

  it("offers to rename and remove a host, but not a node", async () => {
    play(answers({ "GET /hosts": [HOST, BARN, SHED] }));
    await opened("#/hosts/h2");
    expect(await screen.findByText("a node of this tower")).toBeTruthy();
    expect(screen.queryByRole("button", { name: "Remove" })).toBeNull();
    window.location.hash = "#/hosts/h3";
    window.dispatchEvent(new HashChangeEvent("hashchange"));
    expect(await screen.findByRole("button", { name: "Remove" })).toBeTruthy();
  });
});

describe("coming in", () => {
  it("asks for a name and a password, and keeps no token where scripts of others could find it", async () => {
    const all = answers({ "GET /auth/me": 401, "POST /auth/login": { access_token: "secret-token" } });
    const asked = play(all);
    render(App);
    await fireEvent.input(await screen.findByLabelText("Name"), { target: { value: "anna" } });
    await fireEvent.input(screen.getByLabelText("Password"), { target: { value: "pw" } });
    all["GET /auth/me"] = { name: "anna", token_id: "t" };
    await fireEvent.click(screen.getByRole("button", { name: "Log in" }));
    await waitFor(() => Socket.to("/ws/app"));
    expect(asked.find((one) => one.path === "/auth/login")?.body).toEqual({ username: "anna", password: "pw" });
    expect(Socket.to("/ws/app").url).not.toContain("secret-token");
    expect(JSON.stringify(localStorage)).not.toContain("secret-token");
    expect(document.body.innerHTML).not.toContain("secret-token");
  });

  it("takes the first visit's token out of the address before anything else", async () => {
    window.history.replaceState(null, "", "/?token=first-token");
    const asked = play(answers({ "POST /auth/token": { access_token: "x" } }));
    render(App);
    await waitFor(() => Socket.to("/ws/app"));
    expect(window.location.href).not.toContain("first-token");
    expect(asked[0]).toMatchObject({ method: "POST", path: "/auth/token", body: { token: "first-token" } });
  });

  it("says so when the password is wrong", async () => {
    play(answers({ "GET /auth/me": 401, "POST /auth/login": 401 }));
    render(App);
    await fireEvent.input(await screen.findByLabelText("Name"), { target: { value: "anna" } });
    await fireEvent.input(screen.getByLabelText("Password"), { target: { value: "pw" } });
    await fireEvent.submit(screen.getByTestId("login"));
    expect((await screen.findByRole("alert")).textContent).toContain("refused");
  });

  it("asks again when the login has ended, and goes on where it was", async () => {
    const all = answers();
    play(all);
    const app = await opened("#/inbox");
    all["GET /auth/me"] = 401;
    app.close(4401);
    expect(await screen.findByTestId("login", {}, { timeout: 3000 })).toBeTruthy();
    expect(window.location.hash).toBe("#/inbox");
  });
});

describe("the list", () => {
  it("has what waits on top, with a number in the title", async () => {
    play(answers());
    await opened();
    const rows = await screen.findAllByTestId("session-row");
    expect(rows.map((row) => row.dataset["run"])).toEqual(["sess_2", "sess_1"]);
    await waitFor(() => expect(document.title).toBe("(1) Switchtower"));
  });

  it("follows events without being asked", async () => {
    play(answers());
    const app = await opened();
    app.say({ type: "run.permission_decided", ts: "2026-01-01T00:00:02Z", run_id: "sess_2", data: { request_id: "q1", decision: "approve", by: "bob", via: "cli" } });
    await waitFor(() => expect(document.title).toBe("Switchtower"));
    app.say({ type: "run.started", ts: "2026-01-01T00:00:03Z", run_id: "sess_3", host_id: "h1", data: { tool: "bash", cwd: "/x" } });
    await waitFor(() => expect(screen.getAllByTestId("session-row")).toHaveLength(3));
  });

  it("finds by words and says when nothing fits", async () => {
    play(answers());
    await opened();
    await fireEvent.input(screen.getByPlaceholderText("Search"), { target: { value: "second" } });
    await waitFor(() => expect(screen.getAllByTestId("session-row")).toHaveLength(1));
    await fireEvent.input(screen.getByPlaceholderText("Search"), { target: { value: "zzz" } });
    expect(await screen.findByText("Nothing fits “zzz”")).toBeTruthy();
  });

  it("is read again after a break", async () => {
    const all = answers();
    play(all);
    const app = await opened();
    all["GET /runs"] = [ROW];
    app.close(1006);
    await waitFor(() => expect(Socket.all.filter((socket) => socket.url.includes("/ws/app"))).toHaveLength(2), { timeout: 3000 });
    Socket.to("/ws/app").open();
    await waitFor(() => expect(screen.getAllByTestId("session-row")).toHaveLength(1));
  });
});

describe("a decision", () => {
  async function inbox(): Promise<{ app: Socket; card: HTMLElement }> {
    play(answers());
    const app = await opened("#/inbox");
    await screen.findByText("make deploy");
    return { app, card: screen.getByTestId("decision") };
  }

  it.each([
    ["Approve", "run.permission.approve", "approve"],
    ["Deny", "run.permission.deny", "deny"],
    ["Deny and stop", "run.permission.deny", "abort"],
  ])("says `%s` in relay's words", async (name, type, decision) => {
    const { app, card } = await inbox();
    await fireEvent.click(within(card).getByRole("button", { name: new RegExp(`^${name} .$`) }));
    expect(app.sent).toEqual([{ type, run_id: "sess_2", data: { request_id: "q1", actor: "web", decision } }]);
  });

  const risky = (id: string) => ({ ...QUESTION, data: { ...QUESTION.data, request_id: id, op_args: { command: "rm -rf build && git push --force", reasons: ["it deletes files", "it changes a history"], destructive: true } } });

  it("for the rest of the session takes a second tap", async () => {
    const { app, card } = await inbox();
    await fireEvent.click(within(card).getByRole("button", { name: /^Always/ }));
    expect(app.sent).toEqual([]);
    await fireEvent.click(within(card).getByTestId("confirm"));
    expect(app.sent).toEqual([{ type: "run.permission.approve", run_id: "sess_2", data: { request_id: "q1", actor: "web", decision: "approve_for_session" } }]);
  });

  it("of high risk takes a second tap at another place, and lists all reasons", async () => {
    const { app } = await inbox();
    app.say(risky("q9"));
    await screen.findByText("rm -rf build && git push --force");
    const card = screen.getAllByTestId("decision").find((one) => one.dataset["request"] === "q9") as HTMLElement;
    const shown = within(card).getByTestId("reasons").textContent ?? "";
    for (const reason of ["it deletes files", "it changes a history", "It deletes files that do not come back", "It changes a history that others may have"]) expect(shown).toContain(reason);
    const first = () => within(card).getAllByRole("button").filter((button) => button.closest(".answers"))[0] as HTMLElement;
    await fireEvent.click(first());
    await fireEvent.click(first());
    await fireEvent.keyDown(card, { key: "y", repeat: true });
    expect(app.sent).toEqual([]);
    await fireEvent.keyDown(card, { key: "y" });
    expect(app.sent).toEqual([]);
    await fireEvent.click(within(card).getByTestId("confirm"));
    expect(app.sent).toEqual([{ type: "run.permission.approve", run_id: "sess_2", data: { request_id: "q9", actor: "web", decision: "approve" } }]);
  });

  it("that is not shown in full can only be denied", async () => {
    const { app } = await inbox();
    app.say({ ...QUESTION, data: { ...QUESTION.data, request_id: "q8", op_args: { truncated: "{" } } });
    await waitFor(() => expect(screen.getAllByTestId("decision").some((one) => one.dataset["request"] === "q8")).toBe(true));
    const card = screen.getAllByTestId("decision").find((one) => one.dataset["request"] === "q8") as HTMLElement;
    await fireEvent.keyDown(card, { key: "y" });
    expect((within(card).getByRole("button", { name: /^Approve/ }) as HTMLButtonElement).disabled).toBe(true);
    expect(app.sent).toEqual([]);
    await fireEvent.keyDown(card, { key: "n" });
    expect(app.sent).toHaveLength(1);
  });

  it("is made by a key on the card, and by no key elsewhere", async () => {
    const { app, card } = await inbox();
    await fireEvent.keyDown(document.body, { key: "y" });
    await fireEvent.keyDown(within(card).getByRole("button", { name: /^Deny .$/ }), { key: "y" });
    await fireEvent.keyDown(card, { key: "y", ctrlKey: true });
    expect(app.sent).toEqual([]);
    await fireEvent.keyDown(card, { key: "n" });
    expect(app.sent).toHaveLength(1);
  });

  it("is sent once, however often it is clicked", async () => {
    const { app, card } = await inbox();
    const yes = within(card).getByRole("button", { name: /^Approve/ });
    await fireEvent.click(yes);
    await fireEvent.click(yes);
    await fireEvent.keyDown(card, { key: "y" });
    expect(app.sent).toHaveLength(1);
  });

  it("of somebody else is shown with who made it", async () => {
    const { app } = await inbox();
    app.say({ type: "run.permission_decided", ts: "2026-01-01T00:00:02Z", run_id: "sess_2", data: { request_id: "q1", decision: "deny", by: "bob", via: "cli" } });
    expect((await screen.findByTestId("decided")).textContent).toContain("Denied by bob (cli)");
    expect(screen.queryByRole("button", { name: /^Approve/ })).toBeNull();
  });

  it("that was refused is explained", async () => {
    const { app } = await inbox();
    app.say({ type: "run.error", ts: "", run_id: "sess_2", data: { command: "run.permission.approve", error: "already decided" } });
    expect((await screen.findByTestId("toast")).textContent).toContain("Approving was refused: already decided");
  });
});

describe("a conversation", () => {
  async function talking(more: Answers = {}): Promise<{ talk: Socket; app: Socket }> {
    play(answers(more));
    const app = await opened("#/s/sess_1");
    await waitFor(() => Socket.to("/ws/minicodex"));
    const talk = Socket.to("/ws/minicodex");
    talk.open();
    talk.say({ type: "welcome", v: "1.0.0", session_state: STATE });
    talk.say({ type: "snapshot", v: "1.0.0", session_state: STATE, transcript: [{ type: "user_text", text: "hello" }], event_id: 10 });
    await screen.findByTestId("user-message");
    return { talk, app };
  }

  it("streams what is said", async () => {
    const { talk } = await talking();
    for (const [at, text] of ["Some **bo", "ld** words", " and `code`"].entries()) talk.say({ type: "assistant_text", text, event_id: 11 + at, ts: "2026-01-01T00:00:00Z" });
    await waitFor(() => expect(screen.getByTestId("assistant-message").textContent).toBe("Some bold words and code"));
    expect(screen.getByTestId("assistant-message").querySelector("strong")?.textContent).toBe("bold");
  });

  it("sends a message once, also over a break", async () => {
    const { talk } = await talking();
    const field = screen.getByTestId("composer");
    await fireEvent.input(field, { target: { value: "do it" } });
    await fireEvent.keyDown(field, { key: "Enter" });
    const sent = talk.sent.find((frame) => frame["type"] === "send");
    expect(sent).toMatchObject({ text: "do it" });
    talk.close(1006);
    await waitFor(() => expect(Socket.all.filter((socket) => socket.url.includes("/ws/minicodex"))).toHaveLength(2), { timeout: 3000 });
    const again = Socket.to("/ws/minicodex");
    again.open();
    expect(again.sent[0]).toEqual({ type: "resume", last_seen_event_id: 10 });
    expect(again.sent[1]).toEqual(sent);
    again.say({ type: "accepted", req_id: sent?.["req_id"] });
    again.close(1006);
    await waitFor(() => expect(Socket.all.filter((socket) => socket.url.includes("/ws/minicodex"))).toHaveLength(3), { timeout: 3000 });
    const third = Socket.to("/ws/minicodex");
    third.open();
    expect(third.sent.map((frame) => frame["type"])).toEqual(["resume"]);
  });

  it("steers a run at work, gives the daemon what comes later, and stops it", async () => {
    const { talk, app } = await talking();
    talk.say({ type: "run_status", run_state: { ...RUN, status: "running" }, event_id: 20 });
    const field = screen.getByTestId("composer");
    await fireEvent.input(field, { target: { value: "rather so" } });
    await fireEvent.click(await screen.findByRole("button", { name: "Steer" }));
    expect(app.sent.at(-1)).toMatchObject({ type: "run.send_input", run_id: "sess_1", data: { text: "rather so" } });
    expect(app.sent.at(-1)?.["data"]).not.toHaveProperty("delivery");
    await fireEvent.input(field, { target: { value: "and then" } });
    await fireEvent.click(screen.getByRole("button", { name: "Follow up" }));
    expect(app.sent.at(-1)).toMatchObject({ type: "run.send_input", data: { text: "and then", delivery: "follow_up" } });
    expect(await screen.findByText("and then")).toBeTruthy();
    await fireEvent.click(screen.getByTestId("abort"));
    expect(talk.sent.at(-1)).toMatchObject({ type: "abort" });
    talk.say({ type: "user_text", text: "and then", event_id: 30, ts: "2026-01-01T00:00:00Z" });
    await waitFor(() => expect(screen.queryByText("When the run has ended:")).toBeNull());
  });

  it("keeps what comes later itself when the run is on another host", async () => {
    const { talk } = await talking({ "GET /hosts": [HOST, { ...HOST, id: "h2", is_this_daemon: false }], "GET /runs": [{ ...ROW, host_id: "h2" }], "GET /runs/sess_1": { ...ROW, host_id: "h2" } });
    talk.say({ type: "run_status", run_state: { ...RUN, status: "running" }, event_id: 20 });
    await fireEvent.input(screen.getByTestId("composer"), { target: { value: "and then" } });
    await fireEvent.click(await screen.findByRole("button", { name: "Follow up" }));
    expect(talk.sent.some((frame) => frame["type"] === "send")).toBe(false);
    talk.say({ type: "run_status", run_state: { ...RUN, status: "finished" }, event_id: 21 });
    await waitFor(() => expect(talk.sent.at(-1)).toMatchObject({ type: "send", text: "and then" }));
  });

  it("gives what comes later to the tower when the run is on another node of it", async () => {
    const barn = { ...HOST, id: "h2", name: "barn", is_this_daemon: false, is_node: true };
    const { talk, app } = await talking({ "GET /hosts": [HOST, barn], "GET /runs": [{ ...ROW, host_id: "h2" }], "GET /runs/sess_1": { ...ROW, host_id: "h2" } });
    talk.say({ type: "run_status", run_state: { ...RUN, status: "running" }, event_id: 20 });
    await fireEvent.input(screen.getByTestId("composer"), { target: { value: "and then" } });
    await fireEvent.click(await screen.findByRole("button", { name: "Follow up" }));
    expect(app.sent.at(-1)).toMatchObject({ type: "run.send_input", data: { text: "and then", delivery: "follow_up" } });
  });

  it("does not go on by itself after a stop", async () => {
    const { talk } = await talking({ "GET /hosts": [{ ...HOST, id: "h2" }] });
    talk.say({ type: "run_status", run_state: { ...RUN, status: "running" }, event_id: 20 });
    await fireEvent.input(screen.getByTestId("composer"), { target: { value: "and then" } });
    await fireEvent.click(await screen.findByRole("button", { name: "Follow up" }));
    talk.say({ type: "error", code: "ABORTED", message: "stopped", event_id: 21 });
    talk.say({ type: "run_status", run_state: { ...RUN, status: "finished" }, event_id: 22 });
    await screen.findByText("stopped");
    expect(talk.sent.some((frame) => frame["type"] === "send")).toBe(false);
    expect(screen.getByText("and then")).toBeTruthy();
  });

  it("asks for the whole again when what it missed is gone", async () => {
    const { talk } = await talking();
    talk.say({ type: "error", code: "REPLAY_GAP", message: "gone" });
    expect(talk.sent.at(-1)).toEqual({ type: "get_snapshot", include_transcript_window: true });
  });

  it("shows a tool's output while it runs, then its result", async () => {
    const { talk, app } = await talking();
    talk.say({ type: "tool_call", name: "run", args: { command: "make" }, call_id: "c1", event_id: 30, ts: "2026-01-01T00:00:00Z" });
    app.say({ type: "tool.call", ts: "2026-01-01T00:00:00Z", run_id: "sess_1", data: { request_id: "c1" } });
    app.say({ type: "run.output", ts: "2026-01-01T00:00:00Z", run_id: "sess_1", data: { text: "compiling\n" } });
    expect((await screen.findByTestId("live-output")).textContent).toBe("compiling\n");
    talk.say({ type: "function_call_output", call_id: "c1", result: { content: [{ type: "text", text: "broken" }], isError: true }, event_id: 31, ts: "2026-01-01T00:00:00Z" });
    expect((await screen.findByTestId("tool-result")).textContent).toBe("broken");
    expect(screen.queryByTestId("live-output")).toBeNull();
  });
});

describe("whatever others say", () => {
  const hostile = PAYLOADS.join(" ");
  const row = { ...ASKS, id: "sess_2", host_id: hostile, tool: hostile, cwd: hostile, title: hostile, pending_prompt: hostile, pending_op_args_summary: hostile };
  const all = (): Answers =>
    answers({
      "GET /runs": [row, { ...ROW, title: hostile, cwd: hostile }],
      "GET /runs/sess_1": { ...ROW, title: hostile, cwd: hostile },
      "GET /hosts": [{ ...HOST, id: hostile, name: hostile }],
      "GET /runs/sess_2/messages": [{ id: 1, seq: 1, ts: "", role: "system", kind: QUESTION.type, actor: null, request_id: "q1", text: hostile, data: { ...QUESTION.data, prompt: hostile, op_args: { command: hostile, reason: hostile, cwd: hostile, always: hostile, diff: `--- ${hostile}\n+++ ${hostile}\n@@ -1 +1 @@\n-${hostile}\n+${hostile}` } } }],
      "GET /users": [{ name: hostile, created_at: hostile, last_login_at: hostile }],
      "GET /tokens": [{ id: hostile, user: hostile, created_at: hostile, expires_at: hostile, client: hostile }],
      "GET /audit": { items: [{ id: 1, ts: hostile, run_id: hostile, run_title: hostile, tool: hostile, summary: hostile, decision: hostile, by: hostile, via: hostile }], next: null },
    });

  function harmless(): void {
    const forbidden = "main script, main iframe, main img, main object, main embed, main base, main style, main link, main meta";
    expect(document.querySelectorAll(forbidden)).toHaveLength(0);
    for (const element of document.querySelectorAll("main *")) {
      for (const { name, value } of element.attributes) {
        expect(name, element.outerHTML.slice(0, 200)).not.toMatch(/^on|^srcdoc$|^formaction$/);
        if (name === "href" || name === "src") expect(value).toMatch(/^(#|\/icon|https?:|mailto:)/);
      }
    }
  }

  it.each(["#/", "#/inbox", "#/hosts", `#/hosts/${encodeURIComponent(hostile)}`, "#/new", "#/admin/users", "#/admin/tokens", "#/admin/audit", "#/settings"])("is text on %s", async (hash) => {
    play(all());
    await opened(hash);
    await waitFor(() => expect(document.querySelector("main h1")).toBeTruthy());
    await new Promise((done) => setTimeout(done, 20));
    harmless();
  });

  it("is text in a conversation", async () => {
    play(all());
    await opened("#/s/sess_1");
    await waitFor(() => Socket.to("/ws/minicodex"));
    const talk = Socket.to("/ws/minicodex");
    talk.open();
    const transcript = [
      { type: "user_text", text: hostile },
      { type: "reasoning", text: hostile },
      { type: "assistant_text", text: PAYLOADS.join("\n\n") },
      { type: "tool_call", name: hostile, args: { command: hostile, [hostile]: hostile }, call_id: "c1" },
      { type: "function_call_output", call_id: "c1", result: { content: [{ type: "text", text: hostile }], isError: true } },
      { type: "tool_call", name: "edit_file", args: { path: hostile, old: hostile, new: `${hostile}!` }, call_id: "c2" },
    ];
    talk.say({ type: "snapshot", v: "1.0.0", session_state: STATE, transcript, event_id: 10 });
    await waitFor(() => expect(screen.getAllByTestId("tool-card")).toHaveLength(2));
    for (const card of screen.getAllByTestId("tool-card")) await fireEvent.click(within(card).getAllByRole("button")[0] as HTMLElement);
    harmless();
  });
});
