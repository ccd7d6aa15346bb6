// The terminal makes `<style>` elements and `style` attributes while it runs, and our content security policy refuses both. As
// long as a terminal is open, style elements are style sheets in the document's own list, and spans set their style
// property by property. Both are done by script and need no exception. The terminal's own setting for another document is not
// heeded everywhere, so it is the document itself that is changed, and changed back.

let open = 0;

/** Gives what ends it. */
export function allowStyles(document: Document): () => void {
  const sheets = new Set<CSSStyleSheet>();
  const plain = (tag: string, options?: ElementCreationOptions): HTMLElement => Document.prototype.createElement.call(document, tag, options);

  const drop = (sheet: CSSStyleSheet): void => {
    sheets.delete(sheet);
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((kept) => kept !== sheet);
  };

  const sheetHolder = (): HTMLElement => {
    const sheet = new CSSStyleSheet();
    sheets.add(sheet);
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    const element = plain("span");
    element.hidden = true;
    Object.defineProperty(element, "textContent", {
      get: () => "",
      set: (text: string) => sheet.replaceSync(text),
    });
    element.remove = () => {
      drop(sheet);
      Element.prototype.remove.call(element);
    };
    return element;
  };

  const styledSpan = (): HTMLElement => {
    const element = plain("span");
    element.setAttribute = (name: string, value: string) => {
      if (name === "style") element.style.cssText = value;
      else Element.prototype.setAttribute.call(element, name, value);
    };
    return element;
  };

  const make = (tag: string, options?: ElementCreationOptions): HTMLElement => {
    if (tag === "style") return sheetHolder();
    return tag === "span" ? styledSpan() : plain(tag, options);
  };

  open++;
  Object.defineProperty(document, "createElement", { value: make, configurable: true });
  return () => {
    sheets.forEach(drop);
    if (--open === 0) Reflect.deleteProperty(document, "createElement");
  };
}
