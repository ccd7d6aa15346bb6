// Notices outside of the page: the count in the title, and the browser's notifications for users who enabled them.
import type { AppEvent } from "@wire/relay";
import { prefs } from "./prefs.svelte";
import { tower } from "./tower.svelte";

export function canNotify(): boolean {
  return "Notification" in window && window.isSecureContext;
}

export async function switchOn(): Promise<boolean> {
  if (!canNotify()) return false;
  const granted = (await Notification.requestPermission()) === "granted";
  prefs.kept.notify = granted;
  prefs.save();
  return granted;
}

export function switchOff(): void {
  prefs.kept.notify = false;
  prefs.save();
}

export function start(): void {
  tower.asked = (event) => void tell(event);
  navigator.serviceWorker?.addEventListener("message", (event: MessageEvent<unknown>) => {
    const told = event.data as { go?: unknown } | null;
    if (typeof told?.go === "string" && told.go.startsWith("#/")) window.location.hash = told.go;
  });
}

async function tell(event: AppEvent): Promise<void> {
  if (!prefs.kept.notify || !document.hidden || !canNotify() || Notification.permission !== "granted") return;
  const prompt = typeof event.data["prompt"] === "string" ? event.data["prompt"] : "A decision is needed";
  const summary = typeof event.data["op_args_summary"] === "string" ? event.data["op_args_summary"] : "";
  const options = { body: summary, tag: String(event.data["request_id"] ?? ""), icon: "/icon-192.png", data: { url: "/#/inbox" } };
  const worker = await navigator.serviceWorker?.getRegistration();
  if (worker) await worker.showNotification(prompt, options);
  else new Notification(prompt, options);
}

export function title(waiting: number): string {
  return waiting > 0 ? `(${waiting}) Switchtower` : "Switchtower";
}

export function badge(waiting: number): void {
  const own = navigator as Navigator & { setAppBadge?: (count: number) => Promise<void>; clearAppBadge?: () => Promise<void> };
  void (waiting > 0 ? own.setAppBadge?.(waiting) : own.clearAppBadge?.())?.catch(() => {});
}
