// The page's service worker. It keeps the built shell, so that the page opens when the daemon is away, and never an answer of
// the daemon: whatever is not a file of this build goes to the network untouched.
const CACHE = "shell-189e69713b41";
const SHELL = ["/","/manifest.webmanifest","/icon.svg","/assets/Diff-BYWOu99r.css","/assets/Diff-l4F2rMmT.js","/assets/Icon-CL7PrdsH.js","/assets/ansi-CDfd3Imh.js","/assets/index-C_4_CjLo.js","/assets/index-DImQsP1w.css","/assets/prefs.svelte-So4nb-Dj.js","/assets/rolldown-runtime-XKyaHtl9.js","/assets/time-upY0lgjd.js"];

self.addEventListener("install", (event) => {
  event.waitUntil(
    caches
      .open(CACHE)
      .then((cache) => cache.addAll(SHELL.map((path) => new Request(path, { cache: "reload", credentials: "omit" }))))
      .then(() => self.skipWaiting()),
  );
});

self.addEventListener("activate", (event) => {
  event.waitUntil(
    caches
      .keys()
      .then((names) => Promise.all(names.filter((name) => name.startsWith("shell-") && name !== CACHE).map((name) => caches.delete(name))))
      .then(() => self.clients.claim()),
  );
});

self.addEventListener("fetch", (event) => {
  const request = event.request;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== self.location.origin) return;
  if (request.mode === "navigate" && url.pathname === "/") {
    // The newest page when the daemon is there. An address with a token in it is not kept.
    event.respondWith(fetch(request).catch(() => caches.match("/", { cacheName: CACHE })));
    return;
  }
  if (url.pathname.startsWith("/assets/")) {
    // Their names change with their content, so what is kept is what would come.
    event.respondWith(
      caches.match(request, { cacheName: CACHE }).then(
        (kept) =>
          kept ??
          fetch(request).then((answer) => {
            if (answer.ok) {
              const copy = answer.clone();
              event.waitUntil(caches.open(CACHE).then((cache) => cache.put(request, copy)));
            }
            return answer;
          }),
      ),
    );
  } else if (SHELL.includes(url.pathname) && url.pathname !== "/") {
    event.respondWith(caches.match(request, { cacheName: CACHE }).then((kept) => kept ?? fetch(request)));
  }
});

self.addEventListener("push", (event) => {
  let told = {};
  try {
    told = event.data ? event.data.json() : {};
  } catch {
    told = {};
  }
  const title = typeof told.title === "string" ? told.title : "Switchtower";
  const body = typeof told.body === "string" ? told.body : "";
  const tag = typeof told.tag === "string" ? told.tag : undefined;
  const url = typeof told.url === "string" ? told.url : "/#/inbox";
  event.waitUntil(self.registration.showNotification(title, { body, tag, icon: "/icon-192.png", data: { url } }));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const wanted = new URL((event.notification.data && event.notification.data.url) || "/#/inbox", self.location.origin);
  // A notification may only lead to this page.
  const hash = wanted.origin === self.location.origin ? wanted.hash : "#/inbox";
  event.waitUntil(
    self.clients.matchAll({ type: "window", includeUncontrolled: true }).then((open) => {
      const page = open.find((client) => new URL(client.url).pathname === "/");
      if (!page) return self.clients.openWindow(`/${hash}`);
      page.postMessage({ go: hash });
      return page.focus();
    }),
  );
});
