// Bundles the console: node build.mjs OUT. OUT then holds index.html, console.js with its chunks, console.css, a
// gzip twin of each script and style, and LICENSES.txt with the licence of every package inside. The same sources
// and the same lock give the same bytes.

import { mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import { build } from "esbuild";

const WEB = fileURLToPath(new URL(".", import.meta.url));
const SOURCES = join(WEB, "console");

/** A style that a script imports is put on by it: parts of the page that load late bring their own. */
const worn = {
  name: "worn",
  setup({ onResolve, onLoad, esbuild }) {
    onResolve({ filter: /\.css$/ }, ({ kind, path, resolveDir }) =>
      kind === "import-statement" ? { path: join(resolveDir, path), namespace: "worn" } : undefined,
    );
    onLoad({ filter: /.*/, namespace: "worn" }, async ({ path }) => {
      const { code } = await esbuild.transform(readFileSync(path, "utf8"), {
        loader: "css",
        minify: true,
        target: "es2022",
      });
      const contents = `import { wear } from "./ui/adopt-styles.js"; wear(${JSON.stringify(code.trim())});`;
      return { contents, resolveDir: SOURCES };
    });
  },
};

/** The parts of marked that we take, without the whole that it makes of them at once, which a bundler must keep. */
const parts = {
  name: "parts",
  setup({ onLoad }) {
    onLoad({ filter: /marked\.esm\.js$/ }, ({ path }) => {
      const source = readFileSync(path, "utf8");
      const END = /var \w+=new \w+;function \w+\(\w+,\w+\)\{return \w+\.parse\(.*export\{(.*?)\}.*$/s;
      const [whole, names] = END.exec(source);
      const taken = names.split(",").filter((name) => /as (Lexer|Parser|Renderer|Tokenizer|getDefaults)$/.test(name));
      return { contents: `${source.slice(0, -whole.length)}export{${taken}}` };
    });
  },
};

/** The scripts and the style, in memory, and what esbuild knows of them. */
async function bundled() {
  const { outputFiles, metafile } = await build({
    absWorkingDir: WEB,
    entryPoints: [
      { in: join(SOURCES, "app/app-shell.js"), out: "console" },
      { in: join(SOURCES, "app/console.css"), out: "console" },
    ],
    bundle: true,
    plugins: [worn, parts],
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

/** The packages that went in, by the paths of their files. */
function packages(metafile) {
  const named = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//;
  const names = Object.keys(metafile.inputs).map((path) => named.exec(path)?.[1]);
  return [...new Set(names.filter(Boolean))].sort();
}

/** A package's name, version and licence, in its own words. */
function licence(name) {
  const folder = join(WEB, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const files = readdirSync(folder)
    .filter((file) => /^licen[cs]e/i.test(file))
    .sort();
  if (!files.length) throw new Error(`${name} has no licence file`);
  const texts = files.map((file) => readFileSync(join(folder, file), "utf8").trim());
  return [`${name} ${version} (${license})`, ...texts].join("\n\n");
}

/** The files a browser takes to show a conversation: the page, the style, the script and what that imports. */
function firstLoad(metafile) {
  const isText = ([, { entryPoint }]) => entryPoint === "console/chat/message-text.js"; // asked for at once, waited for by nobody
  const [[texts]] = Object.entries(metafile.outputs).filter(isText);
  const wanted = new Set(["out/console.js", texts]);
  for (const path of wanted) {
    const { imports } = metafile.outputs[path];
    imports.filter(({ kind }) => kind === "import-statement").forEach((one) => wanted.add(one.path));
  }
  return ["index.html", "console.css", ...[...wanted].map((path) => basename(path))];
}

/** The page, with what it needs named at once: a browser that finds it in the scripts asks later. */
function pageOf(needed) {
  const chunks = needed.filter((name) => name.startsWith("chunk-"));
  const links = chunks.map((name) => `<link rel="modulepreload" href="${name}">\n`);
  return readFileSync(join(SOURCES, "index.html"), "utf8").replace(/(?=<script)/, links.join(""));
}

/** Puts the files into a folder, each whole or not at all, and takes away what else was there. */
function place(files, folder) {
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
const { files, metafile } = await bundled().catch(() => process.exit(1)); // esbuild has said what is wrong
const needed = firstLoad(metafile);
const page = Buffer.from(pageOf(needed));
const zip = (bytes) => gzipSync(bytes, { level: 9, memLevel: 7 }); // shorter blocks fit scripts a little better
const zipped = new Map([...files, ["index.html", page]].map(([name, bytes]) => [name, zip(bytes)]));
const twins = [...zipped.keys()].map((name) => [`${name}.gz`, zipped.get(name)]);
const licences = packages(metafile)
  .map(licence)
  .join(`\n\n${"-".repeat(80)}\n\n`);
const icon = readFileSync(join(SOURCES, "favicon.svg"));
const others = [
  ["favicon.svg", icon],
  ["LICENSES.txt", `${licences}\n`],
];
place(new Map([["index.html", page], ...files, ...twins, ...others]), out);

const kB = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;
const first = needed.reduce((sum, name) => sum + zipped.get(name).length, 0);
const sizes = [...files].map(([name, bytes]) => `${name} ${kB(bytes.length)} (${kB(zipped.get(name).length)})`);
console.log(`console: a conversation takes ${kB(first)} gzip; ${sizes.join(", ")}`);
