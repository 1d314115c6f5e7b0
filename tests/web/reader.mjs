// The JavaScript readers as a process for tests in Python: one JSON request per line, one JSON answer per line.
//   {"messages": [[data, id], ...]}                what was changed by each, and everything at the end
//   {"pieces": [hex, ...], "limitBytes": n}        the messages of a stream

import { createInterface } from "node:readline";

import { Assembler } from "../../web/client/assembler.js";
import { BadInput, Decoder } from "../../web/client/sse.js";

const shown = (blocks) => blocks.map(({ type, agent, id, void: gone, text }) => [type, agent, id, gone, text]);

function assemble({ messages }) {
  const assembler = new Assembler();
  const changed = messages.map(([data, id]) => shown(assembler.feed(data, id)));
  const open = assembler.asJson();
  const left = shown(assembler.flush());
  return { changed, open, left, json: assembler.asJson(), transcript: assembler.transcript() };
}

function decode({ pieces, limitBytes }) {
  const decoder = new Decoder(limitBytes);
  const messages = [];
  let refused = false;
  try {
    for (const piece of pieces) messages.push(...decoder.feed(Uint8Array.from(Buffer.from(piece, "hex"))));
    decoder.flush();
  } catch (error) {
    if (!(error instanceof BadInput)) throw error;
    refused = true;
  }
  return { messages, lastId: decoder.lastId, retryMs: decoder.retryMs, refused };
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const answer = "messages" in request ? assemble(request) : decode(request);
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
