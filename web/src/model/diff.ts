// Parses unified diffs into lines and lays them out side by side. A diff that is too long is cut and marked as such. Pure.

export type LineKind = "same" | "added" | "removed";

export interface Line {
  kind: LineKind;
  text: string;
  before: number | null;
  after: number | null;
}

export interface Hunk {
  header: string;
  lines: Line[];
}

export interface FileDiff {
  path: string;
  added: number;
  removed: number;
  hunks: Hunk[];
  /** Git's notes in place of lines: a rename, a binary file, a mode. */
  notes: string[];
}

export interface Parsed {
  files: FileDiff[];
  cut: boolean;
}

export interface SideRow {
  left: Line | null;
  right: Line | null;
}

export const MOST_LINES = 5_000;
const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/;

export function looksLikeDiff(text: string): boolean {
  return /^@@ -\d+(,\d+)? \+\d+(,\d+)? @@/m.test(text);
}

export function parse(text: string): Parsed {
  const files: FileDiff[] = [];
  let file: FileDiff | null = null;
  let hunk: Hunk | null = null;
  let before = 0;
  let after = 0;
  let lines = 0;
  const begin = (path: string): FileDiff => {
    const begun: FileDiff = { path, added: 0, removed: 0, hunks: [], notes: [] };
    files.push(begun);
    hunk = null;
    return begun;
  };
  for (const line of text.split("\n")) {
    if (lines > MOST_LINES) return { files, cut: true };
    const header = HUNK.exec(line);
    if (header) {
      file ??= begin("");
      before = Number(header[1]);
      after = Number(header[2]);
      hunk = { header: line, lines: [] };
      file.hunks.push(hunk);
    } else if (line.startsWith("diff --git ")) {
      file = begin(/ b\/(.*)$/.exec(line)?.[1] ?? line.slice(11));
    } else if (line.startsWith("--- ") && (hunk === null || isHeaderAhead(hunk, before, after))) {
      if (file === null || file.hunks.length > 0) file = begin("");
      const path = nameIn(line);
      if (path && !file.path) file.path = path;
    } else if (line.startsWith("+++ ") && hunk === null) {
      file ??= begin("");
      const path = nameIn(line);
      if (path) file.path = path;
    } else if (hunk !== null) {
      const at: Hunk = hunk;
      if (line.startsWith("+")) {
        at.lines.push({ kind: "added", text: line.slice(1), before: null, after: after++ });
        if (file) file.added++;
      } else if (line.startsWith("-")) {
        at.lines.push({ kind: "removed", text: line.slice(1), before: before++, after: null });
        if (file) file.removed++;
      } else if (line.startsWith(" ")) {
        at.lines.push({ kind: "same", text: line.slice(1), before: before++, after: after++ });
      }
      lines++;
    } else if (file !== null && line && !line.startsWith("index ")) {
      file.notes.push(line.slice(0, 500));
      lines++;
    }
  }
  return { files, cut: false };
}

/** `--- ` inside a hunk is a removed line; a new file starts only after the hunk before it is complete. */
function isHeaderAhead(hunk: Hunk, before: number, after: number): boolean {
  const header = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(hunk.header);
  if (!header) return true;
  const left = Number(header[1]) + Number(header[2] ?? "1");
  const right = Number(header[3]) + Number(header[4] ?? "1");
  return before >= left && after >= right;
}

function nameIn(line: string): string | null {
  const name = line.slice(4).split("\t", 1)[0] ?? "";
  return name === "/dev/null" ? null : name.replace(/^[ab]\//, "");
}

/** Puts removed lines next to the added ones that follow them. */
export function sideBySide(hunk: Hunk): SideRow[] {
  const rows: SideRow[] = [];
  let removed: Line[] = [];
  let added: Line[] = [];
  const flush = (): void => {
    for (let at = 0; at < Math.max(removed.length, added.length); at++) {
      rows.push({ left: removed[at] ?? null, right: added[at] ?? null });
    }
    removed = [];
    added = [];
  };
  for (const line of hunk.lines) {
    if (line.kind === "removed") {
      if (added.length > 0) flush();
      removed.push(line);
    } else if (line.kind === "added") {
      added.push(line);
    } else {
      flush();
      rows.push({ left: line, right: line });
    }
  }
  flush();
  return rows;
}

/** Builds a diff of two texts. The common first and last lines are unchanged; everything between them was replaced. */
export function between(path: string, old: string, now: string): Parsed {
  const before = old === "" ? [] : old.replace(/\n$/, "").split("\n");
  const after = now === "" ? [] : now.replace(/\n$/, "").split("\n");
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head++;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) {
    tail++;
  }
  const lines: Line[] = [];
  const context = 3;
  for (let at = Math.max(0, head - context); at < head; at++) lines.push({ kind: "same", text: before[at] ?? "", before: at + 1, after: at + 1 });
  const gone = before.slice(head, before.length - tail);
  const come = after.slice(head, after.length - tail);
  gone.forEach((text, at) => lines.push({ kind: "removed", text, before: head + at + 1, after: null }));
  come.forEach((text, at) => lines.push({ kind: "added", text, before: null, after: head + at + 1 }));
  for (let at = 0; at < Math.min(tail, context); at++) {
    const left = before.length - tail + at;
    lines.push({ kind: "same", text: before[left] ?? "", before: left + 1, after: after.length - tail + at + 1 });
  }
  const cut = lines.length > MOST_LINES;
  const hunk = { header: "", lines: lines.slice(0, MOST_LINES) };
  return { files: [{ path, added: come.length, removed: gone.length, hunks: [hunk], notes: [] }], cut };
}
