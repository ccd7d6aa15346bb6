// Short messages about the result of an action.

export interface Toast {
  id: number;
  text: string;
  kind: "info" | "error";
}

const SHOWN_MS = { info: 3_500, error: 8_000 };

class Toasts {
  list = $state<Toast[]>([]);
  private next = 1;

  say(text: string, kind: Toast["kind"] = "info"): void {
    const toast = { id: this.next++, text: text.slice(0, 500), kind };
    this.list = [...this.list.slice(-3), toast];
    setTimeout(() => this.drop(toast.id), SHOWN_MS[kind]);
  }

  drop(id: number): void {
    this.list = this.list.filter((toast) => toast.id !== id);
  }
}

export const toasts = new Toasts();
