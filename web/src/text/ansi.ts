// Removes control sequences from a program's output that is shown as plain text.
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

/** Shows text that will be executed: invisible characters and direction marks are made visible. */
export function exact(text: string): string {
  return reveal(text);
}
