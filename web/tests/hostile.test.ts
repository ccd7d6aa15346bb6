// All that tools, models and hosts say is untrusted: whatever it is, it becomes text and never an element, a script or a request.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { exact, plain } from "../src/text/ansi";
import { spans } from "../src/text/highlight";
import { pieces, render, safeLink } from "../src/text/markdown";
import { PAYLOADS } from "./payloads";

const ALLOWED = new Set(["P", "A", "CODE", "PRE", "EM", "STRONG", "S", "UL", "OL", "LI", "BLOCKQUOTE", "TABLE", "THEAD", "TBODY", "TR", "TH", "TD", "BR", "HR", "SPAN", "DIV", "H3", "H4", "H5", "H6"]);

function checked(root: ParentNode): void {
  for (const element of root.querySelectorAll("*")) {
    expect(ALLOWED, element.outerHTML).toContain(element.tagName);
    for (const { name, value } of element.attributes) {
      expect(["href", "rel", "target", "class", "tabindex", "data-language", "start"], `${name}=${value}`).toContain(name);
      if (name === "href") expect(value).toMatch(/^(https?:\/\/|mailto:)/);
    }
  }
}

describe("Markdown", () => {
  it.each(PAYLOADS)("makes nothing but harmless elements of %j", (payload) => {
    checked(render(payload));
    for (const piece of pieces(`first\n\n${payload}\n\nlast`)) checked(render(piece));
  });

  it.each(PAYLOADS)("stays harmless at each moment while %j is still coming", (payload) => {
    for (let length = 1; length <= payload.length; length++) checked(render(payload.slice(0, length)));
  });

  it("shows the text of what it does not take", () => {
    const root = document.createElement("div");
    root.append(render("<script>alert(1)</script>"));
    expect(root.textContent).toContain("<script>alert(1)</script>");
    expect(root.querySelector("script")).toBeNull();
  });

  it("loads no picture, and names it", () => {
    const root = document.createElement("div");
    root.append(render("![a cat](http://evil/pixel.png)"));
    expect(root.querySelector("img")).toBeNull();
    expect(root.textContent).toBe("picture: a cat");
  });

  it("opens links elsewhere and tells nobody where from", () => {
    const root = document.createElement("div");
    root.append(render("[site](https://example.org/a?b=c) and https://example.com"));
    const [one, other] = root.querySelectorAll("a");
    expect(one?.href).toBe("https://example.org/a?b=c");
    expect(one?.rel).toContain("noopener");
    expect(one?.target).toBe("_blank");
    expect(other?.href).toBe("https://example.com/");
  });

  it("comes apart into pieces that say the same together", () => {
    const text = "# Title\n\npara one\nstill\n\n- a\n- b\n\n```py\nx = 1\n\ny = 2\n```\n\n| a |\n|---|\n| b |\n\nend";
    const whole = document.createElement("div");
    whole.append(render(text));
    const parts = document.createElement("div");
    for (const piece of pieces(text)) parts.append(render(piece));
    expect(parts.innerHTML).toBe(whole.innerHTML);
    expect(pieces(text).length).toBeGreaterThan(4);
  });

  it("is bounded", () => {
    const root = document.createElement("div");
    root.append(render("x".repeat(1_000_000)));
    expect(root.textContent?.length).toBeLessThanOrEqual(200_000);
    expect(() => render("[".repeat(5_000))).not.toThrow();
    expect(() => render("> ".repeat(2_000))).not.toThrow();
  });
});

describe("links", () => {
  it.each(["javascript:alert(1)", " javascript:alert(1)", "JAVASCRIPT:x", "data:text/html,x", "//evil", "/relative", "file:///x", "blob:x", "", "http://", "ht\ntp://x"])("do not lead to %j", (address) => {
    expect(safeLink(address)).toBeNull();
  });
});

describe("the highlighter's answer", () => {
  it.each(["<img src=x onerror=alert(1)>", '<span class="a" onclick="alert(1)">x</span>', '<span class="hljs-x"><script>1</script></span>', "</span></span><b>x</b>", "&lt;script&gt;&#x27;&quot;&amp;"])("is read as spans and text only: %j", (html) => {
    const root = document.createElement("div");
    root.append(...spans(html));
    for (const element of root.querySelectorAll("*")) {
      expect(element.tagName).toBe("SPAN");
      expect([...element.attributes].map((attribute) => attribute.name)).toEqual(["class"]);
    }
  });

  it("keeps the text as it was", () => {
    const root = document.createElement("div");
    root.append(...spans('<span class="hljs-keyword">if</span> a &lt; b &amp;&amp; c'));
    expect(root.textContent).toBe("if a < b && c");
  });
});

describe("terminal output shown as text", () => {
  it("has no control sequences left", () => {
    expect(plain("\u001b[31mred\u001b[0m \u001b]0;title\u0007x\u001b]8;;http://evil\u001b\\link\u001b]8;;\u001b\\")).toBe("red xlink");
    expect(plain("10%\r50%\r100%\nnext")).toBe("100%\nnext");
    expect(plain("\u001b[")).not.toContain("\u001b");
  });
});

describe("what is about to run", () => {
  it("shows marks that would turn it around", () => {
    expect(exact("echo \u202Egnp.exe")).toBe("echo ⟨U+202E⟩gnp.exe");
    expect(exact("a\u0007b\u001bc")).toBe("a⟨07⟩b⟨1B⟩c");
    expect(exact("ls\n  -la\t.")).toBe("ls\n  -la\t.");
  });

  it("shows each character that cannot be seen, as the daemon's own clients do", () => {
    const cases: { character: number; name: string }[] = JSON.parse(readFileSync("../tests/security/corpus/invisible_characters.json", "utf8"));
    expect(cases.length).toBeGreaterThan(60);
    for (const { character, name } of cases) {
      const shown = exact(`a${String.fromCodePoint(character)}b`);
      expect(shown, name).toMatch(/^a⟨(U\+)?[0-9A-F]{2,6}⟩b$/);
    }
  });

  it("lets no invisible character through", () => {
    for (let number = 0; number <= 0x10ffff; number += 1) {
      const character = String.fromCodePoint(number);
      if (/[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u.test(character) && !"\n\t".includes(character)) {
        if (exact(character) === character) throw new Error(`U+${number.toString(16)} is not shown`);
      }
    }
  });

  it("leaves what can be seen alone", () => {
    for (const text of ["rm -rf ./x && echo 'grün' | tee 日本語", "👩 ✓ é ß ї", "a b"]) expect(exact(text)).toBe(text);
  });
});
