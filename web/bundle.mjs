// Bundles one product in memory: the console, the page of participants with its element, or the element alone.

import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const WEB = fileURLToPath(new URL(".", import.meta.url));

/** By name: the entries, the names of the chunks, and the module that adopts the stylesheets of scripts. */
const BUNDLES = {
  console: {
    entries: { console: ["console/app/app-shell.js", "console/app/console.css"] },
    chunkNames: "chunk-[hash]",
    adopter: "console/ui/adopt-styles.js",
  },
  // a chunk of its own kind: the two bundles are in one folder
  talk: {
    entries: { talk: ["talk/page.js", "talk/page.css"], "turnlog-chat": ["talk/chat-element.js"] },
    chunkNames: "talk-chunk-[hash]",
    adopter: "talk/shared-styles.js",
  },
  chat: {
    entries: { "turnlog-chat": ["talk/chat-element.js"] },
    chunkNames: "chunk-[hash]",
    adopter: "talk/shared-styles.js",
  },
};

/** Turn a stylesheet that a script imports into a script that adopts it, so that lazy chunks bring their styles. */
const inlineCss = (adopter) => ({
  name: "inline-css",
  setup({ onResolve, onLoad, esbuild }) {
    onResolve({ filter: /\.css$/ }, ({ kind, path, resolveDir }) =>
      kind === "import-statement" ? { path: join(resolveDir, path), namespace: "inline-css" } : undefined,
    );
    onLoad({ filter: /.*/, namespace: "inline-css" }, async ({ path }) => {
      const { code } = await esbuild.transform(readFileSync(path, "utf8"), {
        loader: "css",
        minify: true,
        target: "es2022",
      });
      const contents = `import { adoptStyles } from "./${adopter}"; adoptStyles(${JSON.stringify(code.trim())});`;
      return { contents, resolveDir: WEB };
    });
  },
});

/** Return the files of a bundle by name, and esbuild's metafile. */
export async function bundle(name) {
  const { entries, chunkNames, adopter } = BUNDLES[name];
  const entryPoints = Object.entries(entries).flatMap(([out, paths]) =>
    paths.map((path) => ({ in: join(WEB, path), out })),
  );
  const { outputFiles, metafile } = await build({
    absWorkingDir: WEB,
    entryPoints,
    bundle: true,
    plugins: [inlineCss(adopter)],
    splitting: true,
    format: "esm",
    target: "es2022",
    minify: true,
    legalComments: "none",
    chunkNames,
    outdir: "out",
    metafile: true,
    write: false,
    logLevel: "warning",
  });
  const files = outputFiles.map((file) => [basename(file.path), Buffer.from(file.contents)]);
  return { files: new Map(files.sort(([one], [other]) => (one < other ? -1 : 1))), metafile };
}
