// What a page does with a server, step by step: node requests.mjs STORY URL TOKEN. Prints what came of it.

import { buildFault, Client, connect, listPending, Meters, OpenViews, Transcript, Tree } from "../client/dist/index.js";
import { Documents } from "../client/dist/team/index.js";

const [story, url, token] = process.argv.slice(2);
const client = new Client({ url, token });

/** A session that is followed and folded; `until` waits for an event of a type, after the last one waited for. */
class Page {
  #events = [];
  #looked = 0;
  #wake = () => {};
  transcript = new Transcript(() => true);
  meters = new Meters();
  tree = new Tree(() => true);
  views = new OpenViews();
  documents = new Map();
  #kept = new Documents();

  constructor(session) {
    this.session = session;
    this.feed = connect({ url, token, session, onEvent: (event) => this.#take(event) });
  }

  #take(event) {
    for (const fold of [this.transcript, this.meters, this.tree, this.views]) fold.apply(event);
    for (const made of this.#kept.apply(event)) this.documents.set(made.id, made);
    this.#events.push(event);
    this.#wake();
  }

  async until(type, holds = () => true) {
    for (;;) {
      while (this.#looked < this.#events.length) {
        const event = this.#events[this.#looked];
        this.#looked += 1;
        if (event.type === type && holds(event)) return event;
      }
      await new Promise((resolve) => (this.#wake = resolve));
    }
  }

  /** What the page has made of the events, and what the server says about the same seq. */
  async compared() {
    const { session, tree } = this;
    const said = await client.state(session, { at: tree.last, include: ["transcript", "meters", "open"] });
    const { transcript, meters, open } = said;
    const { documents } = await client.documents({ session });
    const mine = {
      transcript: this.transcript.messages,
      meters: this.meters.report(),
      open: listPending(tree),
      documents: [...this.documents.values()].map((made) => ({ session_id: session, ...made })),
    };
    return [mine, { transcript, meters, open, documents }];
  }
}

const nameOf = async (work) => {
  try {
    return await work;
  } catch (error) {
    return `${error.name} ${error.status}`;
  }
};
const isRoot = ({ depth }) => !depth;

const STORIES = {
  async tour() {
    const session = await client.createSession({ title: "A trip" });
    const page = new Page(session);
    const sent = [await client.send("Oslo", { session, key: "k1" }), await client.send("Oslo", { session, key: "k1" })];
    const other = await nameOf(client.send("Rome", { session, key: "k1" }));
    const { payload } = await page.until("tool.await");
    const waiting = await page.compared();
    const [call] = payload.calls;
    const answers = [await client.answer(session, call, true), await client.answer(session, call, true)];
    const late = await nameOf(client.answer(session, call, false));
    await page.until("agent.end", isRoot);
    const [{ title, state }] = (await client.listSessions()).sessions;
    const ended = await page.compared();
    page.feed.close();
    const apps = await client.apps();
    return {
      sent,
      other,
      waiting,
      answers,
      late,
      ended,
      title,
      state,
      apps,
      foreign: await nameOf(client.state("sess_x")),
    };
  },

  async weights() {
    const session = await client.createSession();
    const page = new Page(session);
    await client.send("Weigh-in 187.6 today", { session });
    const {
      id: shown,
      payload: { view },
    } = await page.until("assistant.view");
    await page.until("agent.end", isRoot);
    const submit = (values) => ({ kind: "form.submit", form_id: "weight_entry", values });
    const wrong = submit({ measured_at: "2026-02-31", weight_lbs: "heavy", colour: "red" });
    const mine = buildFault(page.views.validateAction({ view_id: view.view_id, action: wrong }));
    const theirs = await client.submitView(session, view.view_id, wrong).catch((error) => error.fault);
    const right = submit({ measured_at: "2026-01-08", weight_lbs: 187.6 });
    const allowed = page.views.validateAction({ view_id: view.view_id, action: right, shown });
    await client.submitView(session, view.view_id, right, { shown });
    await page.until("agent.end", isRoot);
    const doubled = page.views.validateAction({ view_id: view.view_id, action: right });
    const again = await nameOf(client.submitView(session, view.view_id, right));
    page.feed.close();
    return { mine, theirs, allowed, doubled, again, compared: await page.compared() };
  },

  async endless() {
    const session = await client.createSession();
    const page = new Page(session);
    const { turn } = await client.send("Talk", { session });
    await page.until("block.delta");
    await client.stop(session, { turn });
    const { payload } = await page.until("agent.end");
    page.feed.close();
    return { reason: payload.stop_reason, compared: await page.compared() };
  },

  async broker() {
    const sessionId = await client.createSession();
    const isOver18 = { isOver18: true, isUkResident: true, isHomeowner: true, isEmployed: true };
    const directEvents = [{ type: "record_eligibility", data: isOver18, id: crypto.randomUUID() }];
    const first = await client.chat("customer", { sessionId, directEvents, message: "That is me.", key: "k1" });
    const again = await client.chat("customer", { sessionId, directEvents, message: "That is me.", key: "k1" });
    const other = await nameOf(client.chat("customer", { sessionId, message: "Another", key: "k1" }));
    const wrong = await nameOf(client.chat("customer", { sessionId, directEvents: [{ type: "no_such" }] }));
    return { first, again, other, wrong };
  },
};

process.stdout.write(JSON.stringify(await STORIES[story]()));
