// Lays out a flow's graph in layers and derives the state of each step from the calls of its session. Pure.
import type { CallBlock, CallNote } from "./conversation";

export interface GraphNode {
  id: string;
  type: string;
}

export interface GraphEdge {
  from: string;
  to: string;
  on?: string;
  case?: string;
}

export interface Graph {
  nodes: GraphNode[];
  edges: GraphEdge[];
}

export type StepState = "waiting" | "running" | "asks" | "succeeded" | "failed" | "skipped";

export interface Step {
  id: string;
  type: string;
  state: StepState;
  attempts: number;
  durationMs: number | null;
  call: CallBlock | null;
}

export interface Placed extends GraphNode {
  x: number;
  y: number;
  layer: number;
}

export interface Drawn {
  nodes: Placed[];
  edges: { from: Placed; to: Placed; label: string; path: string; failure: boolean }[];
  width: number;
  height: number;
}

export const NODE_WIDTH = 184;
export const NODE_HEIGHT = 52;
const GAP_X = 36;
const GAP_Y = 44;
const MOST_NODES = 500;

/** Returns the graph that a flow's own call carries; null when it has none or is too large to draw. */
export function graphOf(call: CallBlock): Graph | null {
  const graph = call.args["graph"];
  if (typeof graph !== "object" || graph === null) return null;
  const { nodes, edges } = graph as Record<string, unknown>;
  if (!Array.isArray(nodes) || !Array.isArray(edges) || nodes.length > MOST_NODES) return null;
  const seen: GraphNode[] = [];
  for (const node of nodes as unknown[]) {
    if (typeof node !== "object" || node === null) return null;
    const { id, type } = node as Record<string, unknown>;
    if (typeof id !== "string") return null;
    seen.push({ id, type: typeof type === "string" ? type : "" });
  }
  const known = new Set(seen.map((node) => node.id));
  const lines: GraphEdge[] = [];
  for (const edge of edges as unknown[]) {
    if (typeof edge !== "object" || edge === null) continue;
    const { from, to, on, case: when } = edge as Record<string, unknown>;
    if (typeof from !== "string" || typeof to !== "string" || !known.has(from) || !known.has(to)) continue;
    const line: GraphEdge = { from, to };
    if (typeof on === "string") line.on = on;
    if (when !== undefined && when !== null) line.case = String(when);
    lines.push(line);
  }
  return { nodes: seen, edges: lines };
}

/** Returns the flow's own call: the first one of its session that carries a graph. */
export function flowCall(calls: Iterable<CallBlock>): CallBlock | null {
  for (const call of calls) if (call.name === "flow" && call.args["graph"]) return call;
  return null;
}

export function steps(graph: Graph, calls: Iterable<CallBlock>, notes: ReadonlyMap<string, CallNote>, ended: boolean): Map<string, Step> {
  const found = new Map<string, Step>();
  for (const node of graph.nodes) {
    const state: StepState = ended ? "skipped" : "waiting";
    found.set(node.id, { id: node.id, type: node.type, state, attempts: 0, durationMs: null, call: null });
  }
  for (const call of calls) {
    const id = call.args["step"];
    const step = typeof id === "string" ? found.get(id) : undefined;
    if (!step) continue;
    step.attempts++;
    step.call = call;
    step.durationMs = notes.get(call.callId)?.durationMs ?? null;
    if (call.asks) step.state = "asks";
    else if (call.state === "open") step.state = "running";
    else step.state = call.state === "failed" ? "failed" : "succeeded";
  }
  return found;
}

export function draw(graph: Graph): Drawn {
  const layers = layered(graph);
  const widest = Math.max(1, ...layers.map((layer) => layer.length));
  const width = widest * (NODE_WIDTH + GAP_X) - GAP_X;
  const placed = new Map<string, Placed>();
  layers.forEach((layer, at) => {
    const own = layer.length * (NODE_WIDTH + GAP_X) - GAP_X;
    layer.forEach((node, place) => {
      const x = (width - own) / 2 + place * (NODE_WIDTH + GAP_X);
      placed.set(node.id, { ...node, x, y: at * (NODE_HEIGHT + GAP_Y), layer: at });
    });
  });
  const edges = graph.edges.flatMap((edge) => {
    const from = placed.get(edge.from);
    const to = placed.get(edge.to);
    if (!from || !to) return [];
    const label = edge.case ?? (edge.on && edge.on !== "success" ? edge.on : "");
    return [{ from, to, label, path: curve(from, to), failure: edge.on === "failure" }];
  });
  return { nodes: [...placed.values()], edges, width, height: Math.max(1, layers.length) * (NODE_HEIGHT + GAP_Y) - GAP_Y };
}

/** Puts each node one layer below its lowest predecessor. A cycle, which no valid flow has, ends where it started. */
function layered(graph: Graph): GraphNode[][] {
  const into = new Map<string, number>(graph.nodes.map((node) => [node.id, 0]));
  const out = new Map<string, string[]>();
  for (const edge of graph.edges) {
    into.set(edge.to, (into.get(edge.to) ?? 0) + 1);
    out.set(edge.from, [...(out.get(edge.from) ?? []), edge.to]);
  }
  const depth = new Map<string, number>();
  let ready = graph.nodes.filter((node) => into.get(node.id) === 0).map((node) => node.id);
  for (const id of ready) depth.set(id, 0);
  while (ready.length > 0) {
    const next: string[] = [];
    for (const id of ready) {
      for (const to of out.get(id) ?? []) {
        depth.set(to, Math.max(depth.get(to) ?? 0, (depth.get(id) ?? 0) + 1));
        const left = (into.get(to) ?? 0) - 1;
        into.set(to, left);
        if (left === 0) next.push(to);
      }
    }
    ready = next;
  }
  const layers: GraphNode[][] = [];
  for (const node of graph.nodes) {
    const at = depth.get(node.id) ?? 0;
    (layers[at] ??= []).push(node);
  }
  const filled = Array.from(layers, (layer) => layer ?? []);
  return untangled(filled, graph.edges);
}

/** Orders each layer by its predecessors, so that fewer lines cross. */
function untangled(layers: GraphNode[][], edges: GraphEdge[]): GraphNode[][] {
  const place = new Map<string, number>();
  return layers.map((layer) => {
    const weighed = layer.map((node, at) => {
      const above = edges.filter((edge) => edge.to === node.id && place.has(edge.from)).map((edge) => place.get(edge.from) ?? 0);
      return { node, weight: above.length ? above.reduce((sum, one) => sum + one, 0) / above.length : at };
    });
    weighed.sort((one, other) => one.weight - other.weight);
    weighed.forEach(({ node }, at) => place.set(node.id, at));
    return weighed.map(({ node }) => node);
  });
}

function curve(from: Placed, to: Placed): string {
  const x1 = from.x + NODE_WIDTH / 2;
  const y1 = from.y + NODE_HEIGHT;
  const x2 = to.x + NODE_WIDTH / 2;
  const y2 = to.y - 4;
  const middle = (y1 + y2) / 2;
  return `M${x1} ${y1} C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`;
}
