/**
 * What a person may tell a process and its team: the commands of `ui.command`, with what they need to say. A
 * fold knows what the roster does not: whether the process runs, with whom was spoken before it, what was written.
 */

export class Staff {
  process = null; // the payload of the last process.start of a model that has not ended
  known = new Set(); // names: there are messages of theirs, or for them, of a process that has ended
  spoke = new Set(); // names: the same of the process that runs
  talked = false;
  wrote = false;

  /** Take one event into account. */
  apply({ type, payload }) {
    STEPS[type]?.(this, payload);
  }
}

const STEPS = {
  __proto__: null, // a type may be called like what every object has
  "process.start": (staff, payload) => payload.process === "model" && (staff.process = payload),
  "process.end": (staff, payload) => payload.process === "model" && ended(staff),
  "ui.message": (staff, { target }) => {
    staff.talked = true;
    if (target) staff.spoke.add(target);
  },
  "assistant.message": (staff, { speaker }) => speaker && staff.spoke.add(speaker),
  "artifact.write": (staff) => (staff.wrote = true),
};

/** What was said is of an earlier session from now on. */
function ended(staff) {
  staff.process = null;
  for (const name of staff.spoke) staff.known.add(name);
  staff.spoke.clear();
}

export const summon = () => ({ kind: "summon" });

/** Wake these, as the roster has them. */
export const wake = (members, staff) => ({
  kind: "wake",
  agents: members.map(({ name, color, color_name, seat, soul }) => ({
    name,
    color,
    color_name,
    seat,
    has_soul: soul !== "",
    has_transcript: staff.known.has(name),
  })),
});

export const startSession = (staff) => ({
  kind: "session.start",
  has_previous_transcript: staff.talked,
  has_artifact_catalog: staff.wrote,
});

export const endSession = () => ({ kind: "session.end" });

/** Offer somebody work: one job on each line. */
export const offerWork = (agent, lines) => ({
  kind: "offer_work",
  agent,
  jobs: lines
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean),
});

/** A colour that may be painted: what a model wrote is never a style. */
export const colour = (text) => (/^#(?:[\da-f]{3}|[\da-f]{6})$/i.test(text) ? text : "");

/** Who sleeps, in the order of the seats. */
export const sleepers = (grid) => grid.filter((member) => member?.state === "sleeping");
