// A page that follows what its address says and keeps all it was told: `seen` has [cursor, data] of every event.

import { Client, connect } from "./index.js";

const query = new URLSearchParams(location.search);
const sessions = query.get("sessions").split(",");
const show = (id, text) => (document.getElementById(id).textContent = text);

document.body.append(...sessions.map((id) => Object.assign(document.createElement("p"), { id })));

const seen = Object.fromEntries(sessions.map((session) => [session, []]));
const states = [];
const resets = [];
const errors = [];

const feed = connect({
  url: "/",
  sessions,
  ...JSON.parse(query.get("options") ?? "{}"),
  onEvent(event, { session, cursor }) {
    seen[session].push([cursor, JSON.stringify(event)]);
    show("last", `${event.seq}`);
    show(session, `${event.seq}`);
  },
  onReset(reset) {
    resets.push(reset);
    seen[reset.session_id].length = 0;
  },
  onState(state) {
    states.push(state);
    show("state", state);
  },
  onError: (error) => errors.push([error.name, error.status]),
});

window.reader = { feed, seen, states, resets, errors, client: new Client({ url: "/" }) };
