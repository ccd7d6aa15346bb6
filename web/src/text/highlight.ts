// Syntax highlighting. The highlighter is large, so it is loaded with the first code. Its HTML output is never parsed by the
// browser; it is converted to spans and text by the few forms that it has.
import type { HLJSApi } from "highlight.js";

let loading: Promise<HLJSApi> | null = null;
const LONGEST = 50_000;

function highlighter(): Promise<HLJSApi> {
  loading ??= import("./languages").then((module) => module.hljs);
  return loading;
}

export function colour(code: HTMLElement, language: string): void {
  const text = code.textContent ?? "";
  if (text.length > LONGEST) return;
  void highlighter().then((hljs) => {
    // The text may have grown meanwhile: then a later call highlights it.
    if (code.textContent !== text || !hljs.getLanguage(language)) return;
    code.replaceChildren(...spans(hljs.highlight(text, { language, ignoreIllegals: true }).value));
  });
}

const FORMS = /<span class="([\w\s-]+)">|<\/span>|&(amp|lt|gt|quot|#x27);/g;
const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', "#x27": "'" };

/** Everything that is not one of the three forms is text. */
export function spans(html: string): Node[] {
  const root = document.createElement("span");
  const open: HTMLElement[] = [root];
  let at = 0;
  const here = (): HTMLElement => open[open.length - 1] ?? root;
  const say = (text: string): void => {
    if (text) here().appendChild(document.createTextNode(text));
  };
  for (const form of html.matchAll(FORMS)) {
    say(html.slice(at, form.index));
    at = form.index + form[0].length;
    if (form[1] !== undefined) {
      const span = document.createElement("span");
      span.className = form[1];
      here().appendChild(span);
      open.push(span);
    } else if (form[2] !== undefined) {
      say(ENTITIES[form[2]] ?? "");
    } else if (open.length > 1) {
      open.pop();
    }
  }
  say(html.slice(at));
  return [...root.childNodes];
}

const BY_ENDING: Record<string, string> = {
  py: "python",
  ts: "typescript",
  tsx: "typescript",
  js: "javascript",
  mjs: "javascript",
  jsx: "javascript",
  rs: "rust",
  go: "go",
  java: "java",
  c: "c",
  h: "c",
  cpp: "cpp",
  cc: "cpp",
  hpp: "cpp",
  sh: "bash",
  bash: "bash",
  json: "json",
  yaml: "yaml",
  yml: "yaml",
  toml: "ini",
  ini: "ini",
  md: "markdown",
  css: "css",
  html: "xml",
  xml: "xml",
  svelte: "xml",
  sql: "sql",
  diff: "diff",
  dockerfile: "dockerfile",
  makefile: "makefile",
};

export function languageOf(path: string): string | null {
  const name = path.split("/").pop()?.toLowerCase() ?? "";
  return BY_ENDING[name.includes(".") ? (name.split(".").pop() ?? "") : name] ?? null;
}
