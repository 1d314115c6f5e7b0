// The JavaScript readers as a process for tests in Python: one JSON request per line, one JSON answer per line.
//   {"messages": [[data, id], ...]}                what was changed by each, and everything at the end
//   {"pieces": [hex, ...], "limitBytes": n}        the messages of a stream
//   {"log": [event, ...], "vocabulary": word}      after every event all that is folded of the log so far
//   {"tree": tree}                                 where a tree of a view is wrong, or null
//   {"views": [event, ...], "action": payload}     what is wrong with an action after these events

import { createInterface } from "node:readline";

import { Assembler } from "../client/dist/blocks/assembler.js";
import { Meters, OpenViews, Transcript, Tree, listPending } from "../client/dist/index.js";
import { Documents } from "../client/dist/team/index.js";
import { BadInput, Decoder } from "../client/dist/transport/sse.js";
import { validateView } from "../client/dist/views/schema.js";

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

function fold({ log, vocabulary }) {
  const mine = (type) => type.startsWith(`${vocabulary}.`);
  const [transcript, meters, tree, documents] = [new Transcript(mine), new Meters(), new Tree(mine), new Documents()];
  return log.map((event) => {
    for (const folded of [transcript, meters, tree]) folded.apply(event);
    const changed = documents.apply(event);
    const seen = { bubbles: transcript.visibleTo(["customer"]), meters: meters.visibleTo(["customer"]).report() };
    return { bubbles: transcript.messages, meters: meters.report(), open: listPending(tree), documents: changed, seen };
  });
}

function checkAction({ views, action }) {
  const folded = new OpenViews();
  for (const event of views) folded.apply(event);
  return folded.validateAction(action);
}

const ANSWERS = {
  messages: assemble,
  pieces: decode,
  log: fold,
  views: checkAction,
  tree: ({ tree }) => validateView(tree)?.path ?? null,
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const [question] = Object.keys(ANSWERS).filter((name) => name in request);
  process.stdout.write(`${JSON.stringify(ANSWERS[question](request))}\n`);
}
