/**
 * One view of a snapshot in the form that the elements of views take: a session with the folds of this view alone.
 *
 * The object and its `entry` stay the same while the view lives, so that an update does not disturb what is typed.
 */

import { OpenViews } from "../client/views/views.js";
import { Submissions } from "../console/views/submissions.js";

export class ViewSession {
  entry = null;
  #talk;
  #part = null;
  #folds = new Map();
  #watchers = new Set();

  constructor(talk) {
    this.#talk = talk;
    this.log = {
      fold: (Kind) => this.#folds.get(Kind),
      displayName: (actor) => (talk.isMe(actor) ? talk.texts.you : talk.nameOf(actor)),
    };
    Object.defineProperty(this.log, "last", { get: () => talk.snapshot.last });
  }

  get id() {
    return this.#talk.id;
  }

  get client() {
    return this.#talk.client;
  }

  imageAddress(address) {
    return this.#talk.imageAddress(address);
  }

  get viewTexts() {
    return this.#talk.texts.view;
  }

  get locale() {
    return this.#talk.locale;
  }

  /** Whether the session is closed: nobody can act in it. */
  get hasEnded() {
    return this.#talk.isClosed;
  }

  watch(update) {
    this.#watchers.add(update);
    return () => this.#watchers.delete(update);
  }

  /** Take the part of a snapshot; the same part changes nothing. */
  update(part, channel) {
    if (part === this.#part) return;
    this.#part = part;
    const { event_id, seq, view, updates, actions, state } = part;
    this.entry ??= { event_id, seq, channel, view };
    Object.assign(this.entry, { updates, actions, over: state === "open" ? null : state });
    const open = new OpenViews();
    const submissions = new Submissions();
    for (const event of viewEvents(part, channel)) {
      open.apply(event);
      submissions.apply(event);
    }
    this.#folds = new Map([
      [OpenViews, open],
      [Submissions, submissions],
    ]);
    this.notify();
  }

  /** Let the elements of the view look again. */
  notify() {
    for (const watch of [...this.#watchers]) watch();
  }
}

/** Return the events that made a view what it is. */
function viewEvents({ event_id, view_id, view, updates, actions }, channel) {
  const show = (tree) => ({ type: "assistant.view", id: event_id, channel, payload: { view: { ...view, tree } } });
  const act = ({ action }) => ({ type: "ui.action", channel, payload: { view_id, shown: event_id, action } });
  return [show(view.tree), ...updates.map(show), ...actions.map(act)];
}
