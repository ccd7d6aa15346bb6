// Characters that are invisible or change how others are displayed. The daemon has the same table in
// `src/switchtower/core/characters.py`; a test compares them. Pure.

export const RANGES: ReadonlyArray<readonly [number, number]> = [
  [0x00ad, 0x00ad], // soft hyphen
  [0x034f, 0x034f], // combining grapheme joiner
  [0x061c, 0x061c], // direction of Arabic
  [0x115f, 0x1160], // Hangul fillers
  [0x17b4, 0x17b5], // Khmer vowels without a shape
  [0x180b, 0x180f], // Mongolian selectors and separator
  [0x200b, 0x200f], // zero width, direction
  [0x2028, 0x202f], // line and paragraph separators, embedding and overriding of direction, narrow space
  [0x205f, 0x206f], // joiners, invisible operators, isolation of direction
  [0x2800, 0x2800], // an empty Braille pattern
  [0x3164, 0x3164], // Hangul filler
  [0xfe00, 0xfe0f], // variation selectors
  [0xfeff, 0xfeff], // byte order mark
  [0xffa0, 0xffa0], // half-width Hangul filler
  [0xfff0, 0xfffb], // reserved, interlinear annotation
  [0x1bca0, 0x1bca3], // controls of shorthand
  [0x1d173, 0x1d17a], // controls of musical notation
  [0xe0000, 0xe0fff], // tags and more variation selectors
];

const HIDING = RANGES.map(([first, last]) => `\\u{${first.toString(16)}}-\\u{${last.toString(16)}}`).join("");

// The page lays out line feeds and tabs. Every other control, separator, space except U+0020, and private, unassigned or
// surrogate character counts as invisible too.
const INVISIBLE = new RegExp(`(?![\\n\\t ])[\\p{C}\\p{Z}\\p{Default_Ignorable_Code_Point}${HIDING}]`, "gu");

/** Replaces each invisible character by its number. */
export function reveal(text: string): string {
  return text.replace(INVISIBLE, (character) => {
    const number = character.codePointAt(0) ?? 0;
    return number < 0x20 || number === 0x7f
      ? `⟨${number.toString(16).toUpperCase().padStart(2, "0")}⟩`
      : `⟨U+${number.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}
