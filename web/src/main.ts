import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { prefs } from "./state/prefs.svelte";

prefs.show();
const target = document.getElementById("app");
if (target) mount(App, { target });

if ("serviceWorker" in navigator && import.meta.env.PROD) {
  void navigator.serviceWorker.register("/sw.js").catch(() => {
    // Without the service worker, the page works only while the daemon is reachable.
  });
}
