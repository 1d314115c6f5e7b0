// The reference server of the project with its file store: node reference.mjs FOLDER. The last line is its URL.
import { DurableStreamTestServer } from "@durable-streams/server";

const server = new DurableStreamTestServer({ port: 0, host: "127.0.0.1", dataDir: process.argv[2] });
console.log(await server.start());
