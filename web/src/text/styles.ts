// The terminal library creates `<style>` elements and `style` attributes at run time, and our content security policy refuses
// both. While a terminal is open, style elements become style sheets in the document's own list, and spans set their style
// property by property. Both are done by script and need no exception in the policy. The library does not use its setting for
// another document everywhere, so this module patches the document itself, and restores it.

let open = 0;

/** Returns a function that restores the document. */
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
