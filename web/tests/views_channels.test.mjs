// Views with one `view_id` in several channels, on the vectors shared with Python.

import assert from "node:assert/strict";
import { test } from "node:test";

import { OpenViews } from "../client/views/views.js";
import { Submissions } from "../console/views/submissions.js";
import { folded, logOf, vectors } from "./vectors.mjs";

const VECTORS = vectors("views/channels");
const CLICK = { kind: "button.click", button_id: "go" };

function eventOf({ show, hide, click, shown, channel }) {
  if (click) return { type: "ui.action", channel, payload: { view_id: click, shown, action: CLICK } };
  const view = { kind: "a2ui.v1", view_id: show ?? hide, tree: show ? VECTORS.view : {} };
  return { type: "assistant.view", channel, payload: { view } };
}

for (const { name, events, channel, action, problems, open, used } of VECTORS.cases) {
  test(`views in channels: ${name}`, () => {
    const views = folded(new OpenViews(), logOf(events.map(eventOf)));
    const found = views.validateAction({ ...action, action: CLICK }, channel);
    assert.deepEqual(
      found.map(({ message }) => message),
      problems,
    );
    const shown = [...views.open.values()];
    assert.deepEqual(
      shown.map(({ event_id }) => event_id),
      open,
    );
    assert.deepEqual(
      shown.filter((view) => view.used.size > 0).map(({ event_id }) => event_id),
      used,
    );
  });
}

test("what was sent on a view is not shown on the view of another channel", () => {
  const events = [
    { show: "v", channel: "buyer" },
    { show: "v", channel: "seller" },
    { click: "v", channel: "buyer" },
  ];
  const sent = folded(new Submissions(), logOf(events.map(eventOf)));
  assert.deepEqual(
    ["buyer", "seller"].map((channel) => sent.forView("v", channel).actions.size),
    [1, 0],
  );
});
