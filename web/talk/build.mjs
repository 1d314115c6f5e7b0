// Bundles the element into dist, as the package ships it: turnlog-chat.js and the chunks that it loads when it needs
// them. The page of the server is not part of the package.

import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { bundle } from "../bundle.mjs";

const OUT = join(fileURLToPath(new URL(".", import.meta.url)), process.argv[2] ?? "dist");

const { files } = await bundle("chat").catch(() => process.exit(1)); // esbuild has printed the errors
rmSync(OUT, { recursive: true, force: true });
mkdirSync(OUT, { recursive: true });
for (const [name, bytes] of files) writeFileSync(join(OUT, name), bytes);
