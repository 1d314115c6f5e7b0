// Bundles the pages: node build.mjs OUT. OUT then holds the console (index.html, console.js with its chunks,
// console.css), the page of participants (talk.html, talk.js, talk.css) and the element to embed (turnlog-chat.js), a
// compressed copy (.gz) of each, the icon, and LICENSES.txt with the licence of every bundled package. The same
// sources and the same lock file give the same bytes.

import { mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import { bundle } from "./bundle.mjs";

const WEB = fileURLToPath(new URL(".", import.meta.url));
const SOURCES = join(WEB, "console");

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

/** Return the files that a browser loads to show a conversation: the entry, and the chunk that it asks for at once. */
function firstLoad({ outputs }, entry, messageText) {
  const [[lazy]] = Object.entries(outputs).filter(([, { entryPoint }]) => entryPoint === messageText);
  const paths = new Set([`out/${entry}.js`, lazy]);
  for (const path of paths) {
    const { imports } = outputs[path];
    imports.filter(({ kind }) => kind === "import-statement").forEach((one) => paths.add(one.path));
  }
  return [`${entry}.css`, ...[...paths].map((path) => basename(path))];
}

/** Return a page with preload links: without them a browser asks for a chunk when it has read the one before. */
function pageWithPreloads(source, root, names) {
  const chunks = names.filter((name) => name.includes("chunk-"));
  const links = chunks.map((name) => `<link rel="modulepreload" href="${root}${name}">\n`);
  return Buffer.from(readFileSync(source, "utf8").replace(/(?=<script)/, links.join("")));
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
const onFailure = () => process.exit(1); // esbuild has printed the errors
const consoleBundle = await bundle("console").catch(onFailure);
const talkBundle = await bundle("talk").catch(onFailure);
const needed = {
  console: firstLoad(consoleBundle.metafile, "console", "console/chat/message-text.js"),
  talk: firstLoad(talkBundle.metafile, "talk", "talk/message-text.js"),
};
const pages = [
  ["index.html", pageWithPreloads(join(SOURCES, "index.html"), "", needed.console)],
  ["talk.html", pageWithPreloads(join(WEB, "talk", "talk.html"), "../", needed.talk)],
];
const sources = new Map([...consoleBundle.files, ...talkBundle.files, ...pages]);
const compressed = new Map([...sources].map(([name, bytes]) => [name, gzipSync(bytes, { level: 9 })]));
const copies = [...compressed].map(([name, bytes]) => [`${name}.gz`, bytes]);
const names = [consoleBundle, talkBundle].flatMap(({ metafile }) => packageNames(metafile));
const licences = [...new Set(names)]
  .sort()
  .map(licenceText)
  .join(`\n\n${"-".repeat(80)}\n\n`);
const others = [
  ["favicon.svg", readFileSync(join(SOURCES, "favicon.svg"))],
  ["LICENSES.txt", `${licences}\n`],
];
writeFiles(new Map([...sources, ...copies, ...others]), out);

const kB = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;
const total = (page, files) => kB([page, ...files].reduce((sum, name) => sum + compressed.get(name).length, 0));
const sizes = [...consoleBundle.files].map(
  ([name, bytes]) => `${name} ${kB(bytes.length)} (${kB(compressed.get(name).length)})`,
);
console.log(`console: a conversation takes ${total("index.html", needed.console)} gzip; ${sizes.join(", ")}`);
console.log(`talk: a conversation takes ${total("talk.html", needed.talk)} gzip`);
