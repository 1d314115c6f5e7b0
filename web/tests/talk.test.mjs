// The page of participants: its texts in every language, and what it computes without a document.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { OpenViews } from "../client/views/views.js";
import { VIEW_TEXTS, viewTextsOf } from "../console/views/texts.js";
import { Submissions } from "../console/views/submissions.js";
import { agentColour } from "../talk/agent-colour.js";
import { TalkSession } from "../talk/talk-session.js";
import { LANGUAGES, chooseLanguage, chooseLocale } from "../talk/texts.js";
import { ViewSession } from "../talk/view-session.js";

/** Return the paths of all texts of a table, each with its type and, for a function, the number of its arguments. */
function shape(table, path = "") {
  return Object.entries(table).flatMap(([name, text]) => {
    const at = `${path}.${name}`;
    if (text !== null && typeof text === "object") return shape(text, at);
    return [[at, typeof text]];
  });
}

const paths = (table) => new Map(shape(table));

test("every language has every text of English, of the same kind, and no other", () => {
  const english = paths(LANGUAGES.en);
  for (const [language, table] of Object.entries(LANGUAGES)) {
    assert.deepEqual([...paths(table)].sort(), [...english].sort(), language);
  }
});

test("every text is words: no text is empty and every function returns one", () => {
  for (const [language, table] of Object.entries(LANGUAGES)) {
    for (const [name, text] of Object.entries({ ...table, ...table.view })) {
      if (typeof text === "object") continue;
      const words = typeof text === "function" ? text("Ada", { kind: "form.submit" }) : text;
      assert(
        typeof words === "string" && words !== "" && !words.includes("undefined"),
        `${language} ${name}: ${words}`,
      );
    }
  }
});

test("language is that of the first tag that has a row, else English", () => {
  assert.equal(chooseLanguage(["de-AT", "en"]), "de");
  assert.equal(chooseLanguage([null, "", "fr", "DE"]), "de");
  assert.equal(chooseLanguage(["constructor", "fr-CA"]), "en");
});

test("times have the form of the browser's region if it is one of the page's language", () => {
  assert.equal(chooseLocale("en", ["en", "en-GB", "en-US"]), "en-GB");
  assert.equal(chooseLocale("en", [null, "de-AT", "fr"]), "en");
  assert.equal(chooseLocale("de", ["en-GB", "de-AT"]), "de-AT");
  assert.equal(chooseLocale("en", ["en-no region", "en-US@posix", "en-AU"]), "en-AU");
});

test("sentences about values are translated by their patterns, and others stay", () => {
  const { problem, late, action, tooLate, notSent } = LANGUAGES.de.view;
  assert.equal(problem("Personen is required"), "Personen wird gebraucht");
  assert.equal(problem("Gewicht must be <= 6"), "Gewicht darf höchstens 6 sein");
  assert.equal(
    problem("Gewicht must be in steps of 5 from 10"),
    "Gewicht muss in Schritten von 5 ab 10 angegeben werden",
  );
  assert.equal(problem("Der Raum ist belegt"), "Der Raum ist belegt");
  assert.equal(late.form_id, "Das wurde schon gesendet.");
  assert.equal(action(null, { kind: "other" }), "Jemand hat gehandelt");
  assert.doesNotMatch(tooLate("too late") + notSent("no"), /late|no$/);
  assert.equal(viewTextsOf({}), VIEW_TEXTS);
});

test("colour of an agent depends on its name alone", () => {
  assert.equal(agentColour("Reception"), agentColour("Reception"));
  const colours = new Set(["Ada", "Bob", "Cleo", "Reception", "Scout", "Guide", "Planner", "Writer"].map(agentColour));
  assert(colours.size > 3);
  for (const colour of colours) assert(colour >= 0 && colour < 6);
});

const FORM = {
  type: "form",
  id: "stay",
  fields: [{ type: "field.text", name: "name", label: "Name", required: true }],
};
const VIEW = { view_id: "v", kind: "a2ui.v1", tree: FORM };
const PART = {
  id: "p",
  type: "view",
  event_id: "e1",
  view_id: "v",
  seq: 3,
  view: VIEW,
  updates: [],
  actions: [],
  state: "open",
};
const TALK = {
  id: "sess_1",
  client: {},
  texts: LANGUAGES.de,
  snapshot: { last: 7 },
  isMe: (principal) => principal === "ada",
  nameOf: (principal) => principal,
};

test("session of a view has the folds of that view, and tells when it changes", () => {
  const session = new ViewSession(TALK);
  session.update(PART, null);
  const { entry } = session;
  let calls = 0;
  const leave = session.watch(() => (calls += 1));
  const act = { view_id: "v", shown: "e1", action: { kind: "form.submit", form_id: "stay", values: {} } };
  assert.equal(session.log.fold(OpenViews).validateAction(act)[0].message, "name is required");
  session.update(PART, null);
  assert.equal(calls, 0);
  const action = { kind: "form.submit", form_id: "stay", values: { name: "Ada" } };
  session.update({ ...PART, actions: [{ actor: "ada", ts: "", seq: 5, action }] }, null);
  assert.equal(calls, 1);
  assert.equal(session.entry, entry);
  assert.deepEqual(session.log.fold(Submissions).forView("v").actions.get("stay"), action);
  assert.equal(session.log.fold(OpenViews).validateAction(act)[0].kind, "conflict");
  session.update({ ...PART, state: "closed" }, null);
  assert.equal(entry.over, "closed");
  leave();
  session.update({ ...PART, state: "replaced" }, null);
  assert.equal(calls, 2);
  assert.deepEqual([session.id, session.log.last, session.viewTexts], ["sess_1", 7, LANGUAGES.de.view]);
  assert.deepEqual([session.log.displayName("ada"), session.log.displayName("bob")], ["Sie", "bob"]);
  assert.equal(session.client, TALK.client);
});

test("who closed a conversation, and why, comes from its last event", () => {
  const talk = new TalkSession({ session: "s", server: "http://localhost", texts: LANGUAGES.de, language: "de" });
  const show = (snapshot) => (talk.store = { getSnapshot: () => ({ members: [], connection: "live", ...snapshot }) });
  show({ status: "idle", ending: null });
  assert.equal(talk.isClosed, false);
  talk.me = "guest_1";
  const members = [{ principal: "ada", name: "Ada", roles: ["owner"] }];
  show({ status: "closed", members, ending: { actor: "ada", reason: null } });
  assert.deepEqual([talk.isClosed, talk.closedText], [true, "Ada hat diese Unterhaltung geschlossen."]);
  show({ status: "closed", members, ending: { actor: "guest_1", reason: "Gebucht." } });
  assert.equal(talk.closedText, "Sie haben diese Unterhaltung geschlossen. Grund: Gebucht.");
  show({ status: "idle", connection: "closed", ending: null });
  assert.deepEqual([talk.isClosed, talk.closedText], [true, LANGUAGES.de.closed]);
});

test("documentation lists the properties of the theme, and no other", () => {
  const read = (path) => readFileSync(new URL(path, import.meta.url), "utf-8");
  const names = (text) => new Set(text.match(/--turnlog-[a-z-]+/g));
  const { 1: section } = /## Theme it\n([^]*?)\n## /.exec(read("../../docs/howto/chat-element.md"));
  assert.deepEqual([...names(section)].sort(), [...names(read("../talk/talk.css"))].sort());
});

test("npm packs the element alone, with its types and without a dependency", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "turnlog-chat-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const talk = fileURLToPath(new URL("../talk/", import.meta.url));
  const [program, ...first] = process.env.npm_execpath ? [process.execPath, process.env.npm_execpath] : ["npm"];
  // Not by `prepack`: npm does not run it below another npm that ignores scripts.
  execFileSync(process.execPath, ["build.mjs"], { cwd: talk });
  execFileSync(program, [...first, "pack", "--silent", "--ignore-scripts", "--pack-destination", folder], {
    cwd: talk,
  });
  execFileSync("tar", ["-xzf", join(folder, readdirSync(folder)[0]), "-C", folder]);
  const packed = join(folder, "package");
  const { exports, dependencies } = JSON.parse(readFileSync(join(packed, "package.json"), "utf-8"));
  assert.equal(dependencies, undefined);
  const files = readdirSync(packed, { recursive: true });
  for (const path of Object.values(exports["."])) assert(files.includes(path.replace("./", "")), path);
  assert(files.includes("LICENSE"));
  const scripts = files.filter((name) => name.endsWith(".js"));
  for (const name of scripts) {
    assert.match(name, /^dist\/(?:turnlog-chat|chunk-\w+)\.js$/);
    const text = readFileSync(join(packed, name), "utf-8");
    // not the names "from" and "mapsfrom" in tables of languages and of TeX
    for (const [, other] of text.matchAll(/(?:(?<=[}\s])from|import\()\s*"([^"]+)"/g))
      assert(scripts.includes(`dist/${other.slice(2)}`), other);
  }
});
