// Compiles the client into dist, as the package ships it: `node build.mjs`; with `--types` the declarations too, which
// need the compiler. esbuild removes the types and leaves one script for each source.

import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const CLIENT = fileURLToPath(new URL(".", import.meta.url));
const OUT = join(CLIENT, "dist");

const sources = readdirSync(CLIENT, { recursive: true }).filter(
  (name) => !/^(?:dist|node_modules)\b/.test(name) && name.endsWith(".ts"),
);

rmSync(OUT, { recursive: true, force: true });
await build({
  absWorkingDir: CLIENT,
  entryPoints: sources,
  outdir: OUT,
  format: "esm",
  target: "es2022",
  logLevel: "warning",
});
if (process.argv.includes("--types")) {
  const compiler = join(createRequire(import.meta.url).resolve("typescript/package.json"), "..", "bin", "tsc");
  const { status } = spawnSync(process.execPath, [compiler, "--project", CLIENT, "--emitDeclarationOnly"], {
    stdio: "inherit",
  });
  process.exitCode = status ?? 1;
}
