// The side of bench/fold.py that runs in Node: node --import TYPESCRIPT fold.mjs EARLIER LOG ROUNDS WAY.
//
// EARLIER is a checkout with the folds of the console before SessionStore, LOG holds one event per line. Prints the
// milliseconds of CPU of every round as JSON: {"before": [ms], "now": [ms]}.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import { emptyState, reduceEvents } from "../web/client/index.js";
import { ChatEntries } from "../web/console/store/chat-entries.js";

const [earlier, path, rounds, way] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(join(earlier, "web", name)).href);
const { SessionLog } = await load("console/store/session-log.js");
const { Meters } = await load("client/folds/meters.js");
const { Names } = await load("client/folds/names.js");

const LIVE_TYPES = new Set(["block.delta", "tool.progress"]);
const WARM_UP_MS = 2000; // until the engine has compiled both sides
const SHORT = 4; // a part of the log for the growth

const log = readFileSync(path, "utf-8").trim().split("\n").map((line) => JSON.parse(line));
const durable = log.filter(({ type }) => !LIVE_TYPES.has(type));

/** Read a text as a page does that draws it: the engine joins its pieces. */
const readText = (text = "") => text.charCodeAt(0);

/** Read what the console drew with every change: the last text, usage, names, and whether an agent works. */
function drawBefore(session) {
  const { tree, conversation } = session;
  readText(conversation.thread.entries.at(-1)?.text);
  return [session.fold(Meters).session, session.fold(Names), tree.waitingAgents().size < tree.open.size];
}

/** Fold as the console did before SessionStore; with `isLive` a page draws after every event. */
function foldBefore(events, isLive) {
  const session = new SessionLog();
  for (const event of events) {
    session.apply(event);
    if (isLive) drawBefore(session);
  }
  return drawBefore(session);
}

const drawNow = ({ messages }) => readText(messages.at(-1)?.parts.at(-1)?.text);

/** Fold as SessionStore does; with `isLive` a page draws the snapshot after every event. */
function foldNow(events, isLive, draw = drawNow) {
  let state = reduceEvents(emptyState("sess_1"), isLive ? [] : events);
  for (const event of isLive ? events : []) {
    state = reduceEvents(state, [event]);
    draw(state.snapshot);
  }
  draw(state.snapshot);
  return state;
}

/** Fold as SessionStore does, and build the entries of the console's chat from its snapshots. */
function foldNowToEntries(events, isLive) {
  const entries = new ChatEntries();
  return foldNow(events, isLive, ({ messages }) => readText(entries.list(messages).at(-1)?.text));
}

/** Return the milliseconds of CPU that a function takes: other processes do not count. */
function measure(run) {
  const begun = process.cpuUsage();
  run();
  const { user, system } = process.cpuUsage(begun);
  return (user + system) / 1000;
}

const short = log.slice(0, log.length / SHORT);
const WAYS = {
  history: { before: () => foldBefore(log, false), now: () => foldNow(log, false) },
  "stored history": { before: () => foldBefore(durable, false), now: () => foldNow(durable, false) },
  live: { before: () => foldBefore(log, true), now: () => foldNow(log, true) },
  "history to entries": { before: () => foldBefore(log, false), now: () => foldNowToEntries(log, false) },
  "live to entries": { before: () => foldBefore(log, true), now: () => foldNowToEntries(log, true) },
  "growth of history": { before: () => foldNow(short, false), now: () => foldNow(log, false) },
  "growth of live": { before: () => foldNow(short, true), now: () => foldNow(log, true) },
};

const times = { before: [], now: [] };
for (let warmMs = 0; warmMs < WARM_UP_MS; ) warmMs += measure(WAYS[way].before) + measure(WAYS[way].now);
for (let round = 0; round < Number(rounds); round += 1) {
  for (const side of round % 2 === 0 ? ["before", "now"] : ["now", "before"]) {
    times[side].push(measure(WAYS[way][side]));
  }
}
console.log(JSON.stringify(times));
