// The page is served by the daemon under a strict content security policy: nothing inline, everything from here.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { svelteTesting } from "@testing-library/svelte/vite";
import { defineConfig } from "vitest/config";
import { fileURLToPath } from "node:url";
import { shell } from "./build/shell.ts";

const daemon = process.env.TOWER_HTTP_URL ?? "http://127.0.0.1:8787";
const documents = fileURLToPath(new URL("../documents/typescript", import.meta.url));

export default defineConfig({
  plugins: [svelte(), svelteTesting(), shell()],
  resolve: { alias: { "@wire": documents } },
  build: {
    outDir: fileURLToPath(new URL("../src/switchtower/web_dist", import.meta.url)),
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    reportCompressedSize: true,
    // A slow machine is no reason for a warning about the time that a plugin takes.
    rolldownOptions: { checks: { bundlerTimings: false } },
  },
  server: {
    fs: { allow: [".", documents] },
    proxy: Object.fromEntries(
      ["/ws", "/auth", "/runs", "/sessions", "/hosts", "/users", "/tokens", "/health", "/readyz", "/metrics", "/audit", "/push"].map(
        (path) => [path, { target: daemon, ws: path === "/ws", changeOrigin: false }],
      ),
    ),
  },
  test: { environment: "jsdom", include: ["tests/**/*.test.ts"], setupFiles: ["tests/setup.ts"], testTimeout: 60_000 },
});
