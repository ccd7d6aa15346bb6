// Control sequences taken out of a program's output, for where it is shown as plain text.

const SEQUENCES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])/g;
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;

export function plain(text: string): string {
  return text
    .replace(SEQUENCES, "")
    .replace(/\r\n/g, "\n")
    .replace(/^.*\r(?=[^\n])/gm, "")
    .replace(CONTROLS, "");
}

// Marks that turn text around can make a command look like another one; they are shown for what they are.
const TURNS = /[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]/g;

export function exact(text: string): string {
  return text
    .replace(TURNS, (mark) => `⟨U+${mark.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}⟩`)
    .replace(CONTROLS, (mark) => `⟨${(mark.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(2, "0")}⟩`);
}
