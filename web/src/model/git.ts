// Parses the output of `git status --porcelain=v1 -b`. Pure.

export interface Changed {
  path: string;
  from: string | null;
  index: string;
  worktree: string;
  word: string;
}

export interface Status {
  branch: string;
  files: Changed[];
}

const WORDS: Record<string, string> = {
  "?": "new",
  A: "added",
  M: "changed",
  D: "deleted",
  R: "renamed",
  C: "copied",
  U: "in conflict",
  T: "type changed",
  "!": "ignored",
};

export function parseStatus(text: string): Status {
  const status: Status = { branch: "", files: [] };
  for (const line of text.split("\n")) {
    if (line.startsWith("## ")) {
      status.branch = line.slice(3);
    } else if (/^[ ?!MADRCUT]{2} /.test(line)) {
      const index = line[0] ?? " ";
      const worktree = line[1] ?? " ";
      const [one, other] = line.slice(3).split(" -> ");
      const moved = other !== undefined && (index === "R" || index === "C");
      const conflict = `${index}${worktree}` === "AA" || `${index}${worktree}` === "DD" || index === "U" || worktree === "U";
      const letter = conflict ? "U" : worktree !== " " ? worktree : index;
      status.files.push({
        path: unquoted(moved ? other : line.slice(3)),
        from: moved ? unquoted(one ?? "") : null,
        index,
        worktree,
        word: WORDS[letter] ?? "changed",
      });
    }
  }
  return status;
}

/** Decodes a quoted name: git writes unusual names in quotes, byte by byte. */
function unquoted(name: string): string {
  if (!name.startsWith('"') || !name.endsWith('"')) return name;
  const bytes: number[] = [];
  const inner = name.slice(1, -1);
  const encoder = new TextEncoder();
  for (let at = 0; at < inner.length; at++) {
    if (inner[at] !== "\\") {
      bytes.push(...encoder.encode(inner[at]));
      continue;
    }
    const octal = /^[0-7]{3}/.exec(inner.slice(at + 1));
    if (octal) {
      bytes.push(parseInt(octal[0], 8));
      at += 3;
    } else {
      const escaped = inner[++at] ?? "";
      bytes.push(...encoder.encode({ n: "\n", t: "\t", r: "\r" }[escaped] ?? escaped));
    }
  }
  return new TextDecoder().decode(new Uint8Array(bytes));
}
