// Notifications while the page is closed, through the browser's push service, if the daemon offers it.
import { get, send } from "../net/http";

export function possible(): boolean {
  return "serviceWorker" in navigator && "PushManager" in window && window.isSecureContext;
}

async function registration(): Promise<ServiceWorkerRegistration | null> {
  return possible() ? ((await navigator.serviceWorker.getRegistration()) ?? null) : null;
}

export async function isOn(): Promise<boolean> {
  return (await (await registration())?.pushManager.getSubscription()) != null;
}

export async function switchOn(): Promise<boolean> {
  const worker = await registration();
  if (!worker) throw new Error("The page's service worker is not there yet; load the page once more");
  if ((await Notification.requestPermission()) !== "granted") throw new Error("The browser did not allow it. Its settings for this site decide.");
  const { public_key } = await get<{ public_key: string }>("/push/key");
  const made = await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: public_key });
  await send("POST", "/push/subscriptions", made.toJSON());
  return true;
}

export async function switchOff(): Promise<boolean> {
  const known = await (await registration())?.pushManager.getSubscription();
  if (known) {
    await send("DELETE", "/push/subscriptions", { endpoint: known.endpoint });
    await known.unsubscribe();
  }
  return false;
}
