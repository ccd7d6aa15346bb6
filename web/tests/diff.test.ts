import { describe, expect, it } from "vitest";
import { between, looksLikeDiff, MOST_LINES, parse, sideBySide } from "../src/model/diff";
import { parseStatus } from "../src/model/git";

const GIT = `diff --git a/src/one.py b/src/one.py
index 1..2 100644
--- a/src/one.py
+++ b/src/one.py
@@ -1,4 +1,4 @@ def f():
 keep
-old
--- minus
+new
+++ plus
 tail
diff --git a/img.png b/img.png
Binary files a/img.png and b/img.png differ
`;

describe("a diff", () => {
  it("is read with its numbers, also where lines look like headers", () => {
    const { files } = parse(GIT);
    expect(files.map((file) => file.path)).toEqual(["src/one.py", "img.png"]);
    expect(files[0]?.hunks[0]?.lines).toEqual([
      { kind: "same", text: "keep", before: 1, after: 1 },
      { kind: "removed", text: "old", before: 2, after: null },
      { kind: "removed", text: "-- minus", before: 3, after: null },
      { kind: "added", text: "new", before: null, after: 2 },
      { kind: "added", text: "++ plus", before: null, after: 3 },
      { kind: "same", text: "tail", before: 4, after: 4 },
    ]);
    expect(files[0]).toMatchObject({ added: 2, removed: 2 });
    expect(files[1]?.notes.join()).toContain("Binary");
  });

  it("has several files without git's own lines", () => {
    const { files } = parse("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-c\n+d\n");
    expect(files.map((file) => [file.path, file.added, file.removed])).toEqual([
      ["x", 1, 1],
      ["y", 1, 1],
    ]);
  });

  it("stands side by side, removed beside added", () => {
    const hunk = parse(GIT).files[0]?.hunks[0];
    expect(hunk && sideBySide(hunk).map((row) => [row.left?.text ?? null, row.right?.text ?? null])).toEqual([
      ["keep", "keep"],
      ["old", "new"],
      ["-- minus", "++ plus"],
      ["tail", "tail"],
    ]);
  });

  it("is cut when it is endless", () => {
    const endless = `@@ -1 +1 @@\n${"+x\n".repeat(MOST_LINES * 2)}`;
    const { files, cut } = parse(endless);
    expect(cut).toBe(true);
    expect(files[0]?.hunks[0]?.lines.length).toBeLessThanOrEqual(MOST_LINES + 2);
  });

  it("is made of two texts, with what is the same left out", () => {
    const before = Array.from({ length: 20 }, (_, at) => `line ${at}`);
    const after = [...before.slice(0, 10), "new", ...before.slice(11)];
    const { files } = between("f", before.join("\n"), after.join("\n"));
    expect(files[0]).toMatchObject({ added: 1, removed: 1 });
    expect(files[0]?.hunks[0]?.lines).toHaveLength(8);
    expect(between("f", "", "a\nb\n").files[0]).toMatchObject({ added: 2, removed: 0 });
  });

  it("is recognised by its hunks and nothing else", () => {
    expect(looksLikeDiff(GIT)).toBe(true);
    expect(looksLikeDiff("- a list\n+ another")).toBe(false);
    for (const rubbish of ["", "@@", "diff --git ", "+++ ", "--- \n--- \n"]) expect(() => parse(rubbish)).not.toThrow();
  });
});

describe("git's status", () => {
  it("is read with renames, conflicts and quoted names", () => {
    const status = parseStatus('## main...origin/main [ahead 1]\n M a b.txt\n?? new/\nR  old -> now\nUU both\n D "tab\\there \\303\\244"\n');
    expect(status.branch).toBe("main...origin/main [ahead 1]");
    expect(status.files.map((file) => [file.word, file.path, file.from])).toEqual([
      ["changed", "a b.txt", null],
      ["new", "new/", null],
      ["renamed", "now", "old"],
      ["in conflict", "both", null],
      ["deleted", "tab\there ä", null],
    ]);
  });
});
