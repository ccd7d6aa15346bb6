// What may not be in the sources, because the policy of the page or its safety forbids it.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

const ROOT = join(import.meta.dirname, "..");

function sources(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => /\.(svelte|ts|css)$/.test(name))
    .map((name) => join(folder, name));
}

describe.each(sources("src"))("%s", (path) => {
  const text = readFileSync(join(ROOT, path), "utf8");

  it.each([
    ["HTML from a text", /\{@html|\.innerHTML\s*=|outerHTML\s*=|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment/],
    ["code from a text", /\beval\(|new Function\(/],
    ["a style attribute, which the policy refuses", /<[a-zA-Z][^>]*\sstyle="/],
    ["an address elsewhere", /(?:src|href)=["']https?:/],
    ["anything kept in the session's storage", /sessionStorage/],
  ])("has no %s", (_what, pattern) => {
    expect(text.match(pattern)?.[0]).toBeUndefined();
  });

  it("keeps nothing in the browser but what somebody likes", () => {
    if (!path.endsWith("prefs.svelte.ts")) expect(text).not.toContain("localStorage");
  });
});

describe("index.html", () => {
  const text = readFileSync(join(ROOT, "index.html"), "utf8");

  it("has nothing inline and nothing from elsewhere", () => {
    expect(text).not.toMatch(/<style|style=|<script(?![^>]*\ssrc=)|\son\w+=|https?:/);
  });
});

describe("the lock file", () => {
  it("names no host", () => {
    expect(readFileSync(join(ROOT, "package-lock.json"), "utf8")).not.toMatch(/"resolved": *"https?:/);
  });
});
