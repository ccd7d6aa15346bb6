// The user's preferences in this browser: theme and folders, never a secret.

export type Theme = "auto" | "light" | "dark";

const KEY = "switchtower.prefs";

interface Kept {
  theme: Theme;
  sideBySide: boolean;
  thinkingOpen: boolean;
  notify: boolean;
  workspaces: Record<string, string[]>;
  collapsedHosts: string[];
}

const FIRST: Kept = { theme: "auto", sideBySide: false, thinkingOpen: false, notify: false, workspaces: {}, collapsedHosts: [] };
const MOST_WORKSPACES = 8;

function read(): Kept {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return { ...FIRST, ...(typeof kept === "object" && kept !== null ? kept : {}) };
  } catch {
    return { ...FIRST };
  }
}

class Prefs {
  kept = $state<Kept>(read());

  save(): void {
    try {
      localStorage.setItem(KEY, JSON.stringify(this.kept));
    } catch {
      // A browser without storage only forgets the preferences.
    }
    this.show();
  }

  show(): void {
    const root = document.documentElement;
    if (this.kept.theme === "auto") delete root.dataset["theme"];
    else root.dataset["theme"] = this.kept.theme;
  }

  setTheme(theme: Theme): void {
    this.kept.theme = theme;
    this.save();
  }

  get isDark(): boolean {
    if (this.kept.theme !== "auto") return this.kept.theme === "dark";
    return window.matchMedia?.("(prefers-color-scheme: dark)").matches ?? false;
  }

  workspacesOf(hostId: string): string[] {
    return this.kept.workspaces[hostId] ?? [];
  }

  rememberWorkspace(hostId: string, folder: string): void {
    if (!folder) return;
    const others = this.workspacesOf(hostId).filter((known) => known !== folder);
    this.kept.workspaces[hostId] = [folder, ...others].slice(0, MOST_WORKSPACES);
    this.save();
  }

  toggleHost(hostId: string): void {
    const folded = this.kept.collapsedHosts;
    this.kept.collapsedHosts = folded.includes(hostId) ? folded.filter((id) => id !== hostId) : [...folded, hostId];
    this.save();
  }
}

export const prefs = new Prefs();
