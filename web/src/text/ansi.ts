// Control sequences taken out of a program's output, for where it is shown as plain text.
import { reveal } from "./invisible";

const SEQUENCES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])/g;
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;

export function plain(text: string): string {
  return text
    .replace(SEQUENCES, "")
    .replace(/\r\n/g, "\n")
    .replace(/^.*\r(?=[^\n])/gm, "")
    .replace(CONTROLS, "");
}

/** What will run: a character that cannot be seen, or that turns text around, is shown for what it is. */
export function exact(text: string): string {
  return reveal(text);
}
