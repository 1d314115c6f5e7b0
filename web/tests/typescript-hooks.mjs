// The module hooks of typescript.mjs.

import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import { transform } from "esbuild";

const CLIENT = new URL("../client/index.ts", import.meta.url).href;

/** Return the address of the TypeScript source that a script is compiled from, or null. */
function findSource(specifier, parent) {
  if (specifier === "@turnlog/client") return CLIENT;
  if (!/^(?:\.{1,2}\/|file:).*\.js$/.test(specifier)) return null;
  const url = new URL(specifier.replace(/\.js$/, ".ts"), parent);
  return existsSync(url) ? url.href : null;
}

export async function resolve(specifier, context, next) {
  const source = findSource(specifier, context.parentURL);
  return source === null ? next(specifier, context) : { url: source, format: "module", shortCircuit: true };
}

export async function load(url, context, next) {
  if (!url.endsWith(".ts")) return next(url, context);
  const sourcefile = fileURLToPath(url);
  const options = { loader: "ts", format: "esm", target: "es2022", sourcemap: "inline", sourcefile };
  const { code } = await transform(await readFile(sourcefile, "utf-8"), options);
  return { format: "module", source: code, shortCircuit: true };
}
