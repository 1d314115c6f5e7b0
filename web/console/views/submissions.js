/**
 * Folds events to the last action on each part of each open view, so that a sent form shows its values after a reload
 * and in other tabs. `version` rises with every event of a view.
 */

import { findView, viewKey } from "../../client/views/view-keys.js";

const ID_FIELDS = new Map([
  ["form.submit", "form_id"],
  ["table.save", "table_id"],
  ["button.click", "button_id"],
]);
const NO_SUBMISSIONS = { version: 0, actions: new Map() };

export class Submissions {
  #views = new Map(); // view key -> { version, actions: part id -> last action }
  #version = 0;

  apply({ type, id, channel = null, payload }) {
    if (type === "assistant.view") this.#addView(id, channel, payload.view);
    else if (type === "ui.action") this.#recordAction(payload, channel);
  }

  /** Return the version and the last actions of a view in a channel. */
  forView(viewId, channel = null) {
    return this.#views.get(viewKey(channel, viewId)) ?? NO_SUBMISSIONS;
  }

  #addView(event_id, channel, { view_id }) {
    const view = { event_id, channel, view_id, version: this.#next(), actions: new Map() };
    this.#views.set(viewKey(channel, view_id), view);
  }

  #recordAction(payload, channel) {
    const view = findView(this.#views.values(), payload, channel);
    if (!view) return;
    const { action } = payload;
    view.version = this.#next();
    const id = ID_FIELDS.get(action.kind);
    if (id) view.actions.set(action[id], action);
  }

  #next() {
    this.#version += 1;
    return this.#version;
  }
}
