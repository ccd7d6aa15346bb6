// Parses the part of Prometheus' text format that the page's charts need. Pure.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const LINE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"/g;
const MOST_SAMPLES = 5_000;

export function parse(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#") || samples.length >= MOST_SAMPLES) continue;
    const read = LINE.exec(line.trim());
    if (!read?.[1] || read[3] === undefined) continue;
    const value = read[3] === "+Inf" ? Infinity : read[3] === "-Inf" ? -Infinity : Number(read[3]);
    const labels: Record<string, string> = {};
    for (const label of (read[2] ?? "").matchAll(LABEL)) {
      if (label[1]) labels[label[1]] = (label[2] ?? "").replace(/\\n/g, "\n").replace(/\\(.)/g, "$1");
    }
    samples.push({ name: read[1], labels, value });
  }
  return samples;
}

export function total(samples: Sample[], name: string): number | null {
  const found = samples.filter((sample) => sample.name === name && Number.isFinite(sample.value));
  return found.length ? found.reduce((sum, sample) => sum + sample.value, 0) : null;
}

export function byLabel(samples: Sample[], name: string, label: string): Map<string, number> {
  const found = new Map<string, number>();
  for (const sample of samples) {
    const key = sample.labels[label];
    if (sample.name === name && key !== undefined) found.set(key, (found.get(key) ?? 0) + sample.value);
  }
  return found;
}

/** Returns a quantile of a histogram from its buckets; null while nothing was counted. */
export function quantile(samples: Sample[], name: string, part: number): number | null {
  const buckets = new Map<number, number>();
  for (const sample of samples) {
    if (sample.name !== `${name}_bucket`) continue;
    const edge = sample.labels["le"] === "+Inf" ? Infinity : Number(sample.labels["le"]);
    buckets.set(edge, (buckets.get(edge) ?? 0) + sample.value);
  }
  const edges = [...buckets].sort(([one], [other]) => one - other);
  const all = edges[edges.length - 1]?.[1] ?? 0;
  if (all === 0) return null;
  let below = 0;
  let lower = 0;
  for (const [edge, count] of edges) {
    if (count >= all * part) {
      if (!Number.isFinite(edge)) return lower;
      return lower + ((edge - lower) * (all * part - below)) / Math.max(1, count - below);
    }
    below = count;
    lower = edge;
  }
  return lower;
}

export interface Series {
  points: { at: number; value: number }[];
}

export const MOST_POINTS = 120;

export function add(series: Series, at: number, value: number): Series {
  return { points: [...series.points, { at, value }].slice(-MOST_POINTS) };
}

/** Returns the growth of a counter since the last sample; after a restart the counter starts at zero again. */
export function rate(before: { at: number; value: number } | null, at: number, value: number): number | null {
  if (!before || at <= before.at) return null;
  const grown = value < before.value ? value : value - before.value;
  return (grown * 1000) / (at - before.at);
}
