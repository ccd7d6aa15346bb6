// Renders Markdown as DOM. Elements are created one by one from the parser's tokens, and text only ever becomes text: no HTML is
// parsed, so none can be injected. Links may use http, https and mailto; images are named, not loaded.
import MarkdownIt from "markdown-it";
import type { Token } from "markdown-it";

const parser = new MarkdownIt("default", { html: false, linkify: true, typographer: false });
parser.disable(["smartquotes", "replacements"]);

const LONGEST = 200_000;
const BLOCKS: Record<string, keyof HTMLElementTagNameMap> = {
  paragraph_open: "p",
  bullet_list_open: "ul",
  ordered_list_open: "ol",
  list_item_open: "li",
  blockquote_open: "blockquote",
  table_open: "table",
  thead_open: "thead",
  tbody_open: "tbody",
  tr_open: "tr",
  th_open: "th",
  td_open: "td",
  em_open: "em",
  strong_open: "strong",
  s_open: "s",
};

export type Colour = (code: HTMLElement, language: string) => void;

/** Returns the address if a link may use it. */
export function safeLink(address: string): string | null {
  const trimmed = address.trim();
  if (!/^(https?:\/\/|mailto:)/i.test(trimmed)) return null;
  try {
    const url = new URL(trimmed);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** Splits a text into independent pieces, so that only the last one changes while the text grows. */
export function pieces(text: string): string[] {
  const lines = text.slice(0, LONGEST).split("\n");
  const found: string[] = [];
  let begun = 0;
  for (const token of parser.parse(lines.join("\n"), {})) {
    if (token.level !== 0 || token.map === null || token.nesting < 0) continue;
    const [from] = token.map;
    if (from > begun) found.push(lines.slice(begun, from).join("\n"));
    begun = from;
  }
  found.push(lines.slice(begun).join("\n"));
  if (text.length > LONGEST) found.push(`\n\n*${text.length - LONGEST} more characters are not shown*`);
  return found;
}

export function render(text: string, colour?: Colour): DocumentFragment {
  const root = document.createDocumentFragment();
  put(root, parser.parse(text.slice(0, LONGEST), {}), colour);
  return root;
}

function put(root: ParentNode & Node, tokens: Token[], colour: Colour | undefined): void {
  const open: Node[] = [root];
  const here = (): Node => open[open.length - 1] ?? root;
  const into = (element: HTMLElement): void => {
    here().appendChild(element);
    open.push(element);
  };
  for (const token of tokens) {
    if (token.nesting < 0) {
      if (open.length > 1) open.pop();
      continue;
    }
    if (token.type === "inline") {
      put(here() as HTMLElement, token.children ?? [], colour);
      continue;
    }
    if (token.hidden) {
      // The paragraph of a tight list: its text goes directly into the item.
      open.push(here());
      continue;
    }
    switch (token.type) {
      case "text":
      case "text_special":
      case "html_inline":
      case "html_block":
        here().appendChild(document.createTextNode(token.content));
        break;
      case "softbreak": // In a model's text, a line break is a line break.
      case "hardbreak":
        here().appendChild(document.createElement("br"));
        break;
      case "hr":
        here().appendChild(document.createElement("hr"));
        break;
      case "code_inline": {
        const code = document.createElement("code");
        code.textContent = token.content;
        here().appendChild(code);
        break;
      }
      case "fence":
      case "code_block":
        here().appendChild(codeBlock(token.content, token.info.trim().split(/\s+/, 1)[0] ?? "", colour));
        break;
      case "image": {
        const picture = document.createElement("span");
        picture.className = "md-picture";
        picture.textContent = `picture: ${token.content || "without a description"}`;
        here().appendChild(picture);
        break;
      }
      case "heading_open": {
        // The headings of a message are below the page's own.
        const level = Math.min(6, Number(token.tag.slice(1)) + 2);
        into(document.createElement(`h${level}` as "h3"));
        break;
      }
      case "link_open": {
        const address = safeLink(String(token.attrGet("href") ?? ""));
        const link = document.createElement(address ? "a" : "span");
        if (link instanceof HTMLAnchorElement && address) {
          link.href = address;
          link.rel = "noopener noreferrer nofollow";
          link.target = "_blank";
        }
        into(link);
        break;
      }
      default: {
        const tag = BLOCKS[token.type];
        const element = document.createElement(tag ?? "span");
        if (tag === "ol") {
          const start = Number(token.attrGet("start") ?? 1);
          if (start !== 1 && Number.isSafeInteger(start)) (element as HTMLOListElement).start = start;
        }
        if (tag === "th" || tag === "td") {
          const align = /text-align:(left|right|center)/.exec(String(token.attrGet("style") ?? ""))?.[1];
          if (align) element.classList.add(`md-${align}`);
        }
        if (token.nesting > 0) into(element);
        else {
          element.textContent = token.content;
          here().appendChild(element);
        }
      }
    }
  }
}

function codeBlock(content: string, language: string, colour: Colour | undefined): HTMLElement {
  const pre = document.createElement("pre");
  pre.tabIndex = 0;
  const code = document.createElement("code");
  code.textContent = content;
  pre.appendChild(code);
  if (/^[\w+#.-]{1,30}$/.test(language)) {
    pre.dataset["language"] = language;
    colour?.(code, language);
  }
  return pre;
}
