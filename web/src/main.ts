import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { prefs } from "./state/prefs.svelte";

prefs.show();
const target = document.getElementById("app");
if (target) mount(App, { target });

if ("serviceWorker" in navigator && import.meta.env.PROD) {
  void navigator.serviceWorker.register("/sw.js").catch(() => {
    // Without it the page works as long as the daemon does.
  });
}
