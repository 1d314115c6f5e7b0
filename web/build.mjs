// Bundles the console: node build.mjs OUT. OUT then holds index.html, console.js with its chunks, console.css, a
// compressed copy (.gz) of each, the icon, and LICENSES.txt with the licence of every bundled package. The same
// sources and the same lock file give the same bytes.

import { mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import { build } from "esbuild";

const WEB = fileURLToPath(new URL(".", import.meta.url));
const SOURCES = join(WEB, "console");

/** Turn a stylesheet that a script imports into a script that adopts it, so that lazy chunks bring their styles. */
const inlineCss = {
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
      const contents = `import { adoptStyles } from "./ui/adopt-styles.js"; adoptStyles(${JSON.stringify(code.trim())});`;
      return { contents, resolveDir: SOURCES };
    });
  },
};

/** Bundle in memory; return the files by name, and esbuild's metafile. */
async function bundle() {
  const { outputFiles, metafile } = await build({
    absWorkingDir: WEB,
    entryPoints: [
      { in: join(SOURCES, "app/app-shell.js"), out: "console" },
      { in: join(SOURCES, "app/console.css"), out: "console" },
    ],
    bundle: true,
    plugins: [inlineCss],
    splitting: true,
    format: "esm",
    target: "es2022",
    minify: true,
    legalComments: "none",
    chunkNames: "chunk-[hash]",
    outdir: "out",
    metafile: true,
    write: false,
    logLevel: "warning",
  });
  const files = outputFiles.map((file) => [basename(file.path), Buffer.from(file.contents)]);
  return { files: new Map(files.sort(([one], [other]) => (one < other ? -1 : 1))), metafile };
}

/** Return the names of the bundled packages, sorted. */
function packageNames(metafile) {
  const pattern = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//;
  const names = Object.keys(metafile.inputs).map((path) => pattern.exec(path)?.[1]);
  return [...new Set(names.filter(Boolean))].sort();
}

/** Return a package's name, version and licence text. Throws if it has no licence file. */
function licenceText(name) {
  const folder = join(WEB, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const files = readdirSync(folder)
    .filter((file) => /^licen[cs]e/i.test(file))
    .sort();
  if (!files.length) throw new Error(`${name} has no licence file`);
  const texts = files.map((file) => readFileSync(join(folder, file), "utf8").trim());
  return [`${name} ${version} (${license})`, ...texts].join("\n\n");
}

/** Return the files that a browser loads to show a conversation. */
function firstLoad(metafile) {
  // the chat loads this chunk as soon as the server has answered
  const isMessageText = ([, { entryPoint }]) => entryPoint === "console/chat/message-text.js";
  const [[messageText]] = Object.entries(metafile.outputs).filter(isMessageText);
  const paths = new Set(["out/console.js", messageText]);
  for (const path of paths) {
    const { imports } = metafile.outputs[path];
    imports.filter(({ kind }) => kind === "import-statement").forEach((one) => paths.add(one.path));
  }
  return ["index.html", "console.css", ...[...paths].map((path) => basename(path))];
}

/** Return index.html with preload links: without them a browser asks for a chunk when it has read the one before. */
function pageWithPreloads(names) {
  const chunks = names.filter((name) => name.startsWith("chunk-"));
  const links = chunks.map((name) => `<link rel="modulepreload" href="${name}">\n`);
  return readFileSync(join(SOURCES, "index.html"), "utf8").replace(/(?=<script)/, links.join(""));
}

/** Write files into a folder and remove all others. Each file is replaced at once: a server may be reading it. */
function writeFiles(files, folder) {
  mkdirSync(folder, { recursive: true });
  for (const [name, bytes] of files) {
    writeFileSync(join(folder, `${name}.new`), bytes);
    renameSync(join(folder, `${name}.new`), join(folder, name));
  }
  readdirSync(folder)
    .filter((name) => !files.has(name))
    .forEach((name) => rmSync(join(folder, name)));
}

const out = process.argv[2] ?? join(WEB, "..", "src", "turnlog", "server", "console");
const { files, metafile } = await bundle().catch(() => process.exit(1)); // esbuild has printed the errors
const needed = firstLoad(metafile);
const page = Buffer.from(pageWithPreloads(needed));
const sources = new Map([...files, ["index.html", page]]);
const compressed = new Map([...sources].map(([name, bytes]) => [name, gzipSync(bytes, { level: 9 })]));
const copies = [...compressed].map(([name, bytes]) => [`${name}.gz`, bytes]);
const licences = packageNames(metafile)
  .map(licenceText)
  .join(`\n\n${"-".repeat(80)}\n\n`);
const others = [
  ["favicon.svg", readFileSync(join(SOURCES, "favicon.svg"))],
  ["LICENSES.txt", `${licences}\n`],
];
writeFiles(new Map([["index.html", page], ...files, ...copies, ...others]), out);

const kB = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;
const total = needed.reduce((sum, name) => sum + compressed.get(name).length, 0);
const sizes = [...files].map(([name, bytes]) => `${name} ${kB(bytes.length)} (${kB(compressed.get(name).length)})`);
console.log(`console: a conversation takes ${kB(total)} gzip; ${sizes.join(", ")}`);
