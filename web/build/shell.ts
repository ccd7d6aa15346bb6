// Writes `sw.js` behind the build: the service worker with the names of exactly the files of this build in it.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync, constants, brotliCompressSync } from "node:zlib";
import type { Plugin } from "vite";

const WORKER = fileURLToPath(new URL("./sw.js", import.meta.url));
const COMPRESSED = /\.(js|css|html|svg|webmanifest)$/;

export function shell(): Plugin {
  return {
    name: "shell",
    apply: "build",
    generateBundle: {
      order: "post",
      handler(_options, bundle) {
        // The terminal and the highlighter come late and are cached when they first come.
        const wanted = new Set<string>();
        const want = (name: string): void => {
          const file = bundle[name];
          if (!file || file.type !== "chunk" || wanted.has(name)) return;
          wanted.add(name);
          file.imports.forEach(want);
          file.viteMetadata?.importedCss.forEach((css) => wanted.add(css));
        };
        for (const file of Object.values(bundle)) if (file.type === "chunk" && file.isEntry) want(file.fileName);
        const first = [...wanted].map((name) => `/${name}`).sort();
        const version = createHash("sha256").update(Object.keys(bundle).sort().join()).digest("hex").slice(0, 12);
        const source = readFileSync(WORKER, "utf8")
          .replace("__VERSION__", version)
          .replace("__SHELL__", JSON.stringify(["/", "/manifest.webmanifest", "/icon.svg", ...first]));
        this.emitFile({ type: "asset", fileName: "sw.js", source });
        for (const file of Object.values(bundle)) {
          if (!COMPRESSED.test(file.fileName) || file.fileName === "index.html") continue;
          const content = Buffer.from(file.type === "chunk" ? file.code : file.source);
          if (content.length < 1024) continue;
          const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } };
          this.emitFile({ type: "asset", fileName: `${file.fileName}.br`, source: brotliCompressSync(content, quality) });
          this.emitFile({ type: "asset", fileName: `${file.fileName}.gz`, source: gzipSync(content, { level: 9 }) });
        }
      },
    },
  };
}
