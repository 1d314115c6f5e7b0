// Runs TypeScript in Node: `node --import ./tests/typescript.mjs`. A `.js` that is not there is its `.ts`, as the compiler
// reads it; esbuild removes the types. Node 20 cannot do that itself.

import { register } from "node:module";

register("./typescript-hooks.mjs", import.meta.url);
