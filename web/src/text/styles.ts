// The terminal makes `<style>` elements while it runs, which our content security policy refuses. It takes the document as a
// parameter, so it is given one whose style elements are style sheets in the document's own list; those are made by script
// and need no exception.

export interface Styled {
  document: Document;
  dispose: () => void;
}

export function styled(real: Document): Styled {
  const sheets = new Set<CSSStyleSheet>();

  const drop = (sheet: CSSStyleSheet): void => {
    sheets.delete(sheet);
    real.adoptedStyleSheets = real.adoptedStyleSheets.filter((kept) => kept !== sheet);
  };

  const holder = (): HTMLElement => {
    const sheet = new CSSStyleSheet();
    sheets.add(sheet);
    real.adoptedStyleSheets = [...real.adoptedStyleSheets, sheet];
    const element = real.createElement("span");
    element.hidden = true;
    Object.defineProperty(element, "textContent", {
      get: () => "",
      set: (text: string) => sheet.replaceSync(text),
    });
    const remove = element.remove.bind(element);
    element.remove = () => {
      drop(sheet);
      remove();
    };
    return element;
  };

  const document = new Proxy(real, {
    get(target, name) {
      if (name === "createElement") {
        return (tag: string, options?: ElementCreationOptions) => (tag.toLowerCase() === "style" ? holder() : target.createElement(tag, options));
      }
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value as (...given: unknown[]) => unknown).bind(target) : value;
    },
    set(target, name, value) {
      return Reflect.set(target, name, value, target);
    },
  });
  return { document, dispose: () => sheets.forEach(drop) };
}
