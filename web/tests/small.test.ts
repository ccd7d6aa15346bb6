// The smaller pure parts: addresses, flows, metrics, pauses.
import { describe, expect, it } from "vitest";
import { deciderOf, sentence } from "../src/model/approvals";
import { draw, graphOf, steps } from "../src/model/flow";
import * as metrics from "../src/model/metrics";
import { firstToken, parse, spell, type Route } from "../src/model/route";
import { pause } from "../src/net/line";
import type { CallBlock } from "../src/model/conversation";
import { uuid } from "../src/text/ids";
import { ago, bytes, left, shortPath, took } from "../src/text/time";

describe("an address", () => {
  it.each([
    { page: "sessions" },
    { page: "session", id: "sess_1", tab: "main" },
    { page: "session", id: "a/b #?%é", tab: "files" },
    { page: "inbox" },
    { page: "new" },
    { page: "hosts", id: null },
    { page: "hosts", id: "host/../x" },
    { page: "admin", tab: "audit" },
    { page: "settings" },
  ] as Route[])("says where we are, both ways: %o", (route) => {
    expect(parse(spell(route))).toEqual(route);
  });

  it.each(["", "#", "#/", "#/nowhere", "#/s/", "#/%E0%A4%A", "#javascript:alert(1)"])("that is none leads to the sessions: %j", (hash) => {
    expect(parse(hash).page).toBe("sessions");
  });

  it.each([
    ["http://h/?token=abc", "abc", "/"],
    ["http://h/#token=a%2Bb", "a+b", "/"],
    ["http://h/?x=1&token=abc#/inbox", "abc", "/?x=1#/inbox"],
  ])("loses its token: %s", (address, token, rest) => {
    expect(firstToken(address)).toEqual({ token, rest });
  });

  it("without a token stays", () => {
    expect(firstToken("http://h/#/s/token=1")).toBeNull();
    expect(firstToken("http://h/")).toBeNull();
  });
});

function call(callId: string, args: Record<string, unknown>, state: CallBlock["state"] = "done", asks = false): CallBlock {
  return { kind: "call", key: 0, rev: 0, callId, name: "log", args, state, result: null, asks, decision: null, ts: null };
}

describe("a flow", () => {
  const flow = call("run", {
    graph: {
      nodes: [{ id: "a", type: "log" }, { id: "b", type: "switch" }, { id: "c", type: "log" }, { id: "d", type: "log" }],
      edges: [{ from: "a", to: "b" }, { from: "b", to: "c", case: "1" }, { from: "b", to: "d", on: "failure" }, { from: "x", to: "a" }],
    },
  });

  it("is drawn in layers, without lines from nowhere", () => {
    const graph = graphOf(flow);
    const drawn = graph && draw(graph);
    expect(drawn?.nodes.map((node) => [node.id, node.layer])).toEqual([["a", 0], ["b", 1], ["c", 2], ["d", 2]]);
    expect(drawn?.edges.map((edge) => [edge.from.id, edge.to.id, edge.label, edge.failure])).toEqual([
      ["a", "b", "", false],
      ["b", "c", "1", false],
      ["b", "d", "failure", true],
    ]);
  });

  it("tells each step's state by its last try", () => {
    const graph = graphOf(flow);
    if (!graph) throw new Error("there is a graph");
    const told = steps(graph, [call("step:a:0", { step: "a" }, "failed"), call("step:a:1", { step: "a" }), call("step:b:0", { step: "b" }, "open", true), call("z", { step: "unknown" })], new Map(), false);
    expect([...told.values()].map((step) => [step.id, step.state, step.attempts])).toEqual([["a", "succeeded", 2], ["b", "asks", 1], ["c", "waiting", 0], ["d", "waiting", 0]]);
    expect(steps(graph, [], new Map(), true).get("c")?.state).toBe("skipped");
  });

  it("that goes in circles or is rubbish is survived", () => {
    expect(draw({ nodes: [{ id: "a", type: "" }, { id: "b", type: "" }], edges: [{ from: "a", to: "b" }, { from: "b", to: "a" }] }).nodes).toHaveLength(2);
    for (const graph of [null, 7, {}, { nodes: 1, edges: 2 }, { nodes: [null], edges: [] }, { nodes: [{ id: 1 }], edges: [] }]) expect(graphOf(call("r", { graph }))).toBeNull();
    expect(draw({ nodes: [], edges: [] }).nodes).toEqual([]);
  });
});

describe("metrics", () => {
  const TEXT = `# HELP x y
switchtower_sessions{state="running"} 3
switchtower_sessions{state="a \\"b\\""} 1
commit_bucket{le="0.1"} 50
commit_bucket{le="1"} 100
commit_bucket{le="+Inf"} 100
broken line here
nan_value NaN
`;

  it("are read, sums and labels", () => {
    const samples = metrics.parse(TEXT);
    expect(metrics.total(samples, "switchtower_sessions")).toBe(4);
    expect([...metrics.byLabel(samples, "switchtower_sessions", "state").keys()]).toEqual(["running", 'a "b"']);
    expect(metrics.total(samples, "missing")).toBeNull();
    expect(metrics.total(samples, "nan_value")).toBeNull();
  });

  it("give a quantile of a histogram", () => {
    expect(metrics.quantile(metrics.parse(TEXT), "commit", 0.5)).toBeCloseTo(0.1);
    expect(metrics.quantile(metrics.parse(TEXT), "commit", 0.75)).toBeCloseTo(0.55);
    expect(metrics.quantile([], "commit", 0.5)).toBeNull();
  });

  it("give a rate that a restart does not make negative", () => {
    expect(metrics.rate(null, 1000, 5)).toBeNull();
    expect(metrics.rate({ at: 0, value: 10 }, 2000, 30)).toBe(10);
    expect(metrics.rate({ at: 0, value: 1000 }, 1000, 7)).toBe(7);
  });

  it("keep only the last points", () => {
    let series: metrics.Series = { points: [] };
    for (let at = 0; at < 500; at++) series = metrics.add(series, at, at);
    expect(series.points).toHaveLength(metrics.MOST_POINTS);
  });
});

describe("a line that broke", () => {
  it("waits longer each time, and never longer than a quarter of a minute", () => {
    const waits = Array.from({ length: 20 }, (_, attempt) => pause(attempt, 1));
    expect(waits.slice(0, 4)).toEqual([400, 800, 1600, 3200]);
    expect(Math.max(...waits)).toBe(15_000);
    expect(pause(0, 0)).toBe(200);
  });
});

describe("words", () => {
  it("for times and sizes", () => {
    const now = Date.parse("2026-01-01T01:00:00Z");
    expect(ago("2026-01-01T00:59:55Z", now)).toBe("now");
    expect(ago("2026-01-01T00:30:00Z", now)).toBe("30 min");
    expect(ago("rubbish", now)).toBe("");
    expect(left("2026-01-01T01:01:30Z", now)).toBe("1:30 min");
    expect(left("2025-01-01T00:00:00Z", now)).toBe("0 s");
    expect(left("2026-01-31T01:00:00Z", now)).toBe("30 d");
    expect(left("2026-01-01T03:30:00Z", now)).toBe("2 h 30 min");
    expect(left("2026-01-02T01:00:00Z", now)).toBe("24 h");
    expect(took(1500)).toBe("1.5 s");
    expect(bytes(1536)).toBe("1.5 KB");
    expect(shortPath("/home/anna/deep/down/project/src")).toBe("…/project/src");
  });

  it("for names that are new each time", () => {
    expect(uuid()).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(uuid()).not.toBe(uuid());
  });
});

describe("who decided", () => {
  const of = (data: Record<string, unknown>) => sentence({ decision: "approve", ...deciderOf(data), at: "" });

  it("is a user of this daemon", () => expect(of({ by: "anna", via: "web" })).toBe("Approved by anna (web)"));
  it("is another host's word, and not a user", () =>
    expect(of({ by: "h1", via: "host", claims: { by: "anna", via: "web" } })).toBe("Approved by host h1, which says anna (web)"));
  it("is the host alone when it names nobody", () => expect(of({ by: "h1", via: "host", claims: null })).toBe("Approved by host h1"));
});
