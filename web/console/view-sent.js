/**
 * What people have sent on each view since it was shown last: a fold over the log. So a form that was sent shows its
 * values after a reload, and in the other tab. `version` rises with everything that happens to a view.
 */

const IDS = new Map([["form.submit", "form_id"], ["table.save", "table_id"], ["button.click", "button_id"]]);
const NOTHING = { version: 0, actions: new Map() };

export class Sent {
  #views = new Map(); // view id -> { version, actions: part id -> the last action }
  #version = 0;

  /** Take one event into account. */
  apply({ type, payload }) {
    if (type === "assistant.view") this.#views.set(payload.view.view_id, { version: this.#next(), actions: new Map() });
    else if (type === "ui.action" && this.#views.has(payload.view_id)) this.#take(payload);
  }

  /** What was sent on a view. */
  on(viewId) {
    return this.#views.get(viewId) ?? NOTHING;
  }

  #take({ view_id, action }) {
    const view = this.#views.get(view_id);
    view.version = this.#next();
    const id = IDS.get(action.kind);
    if (id) view.actions.set(action[id], action);
  }

  #next() {
    this.#version += 1;
    return this.#version;
  }
}
