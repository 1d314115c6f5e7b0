/**
 * What a person may tell a process and its team: the commands of `ui.command`, with what they need to say. A
 * fold knows what the roster does not: whether the process runs, with whom was spoken before it, what was written.
 */

export class ProcessStatus {
  process = null; // the payload of the last process.start of a model that has not ended
  earlierNames = new Set(); // names: there are messages of theirs, or for them, of a process that has ended
  currentNames = new Set(); // names: the same of the process that runs
  hasMessages = false;
  hasFiles = false;

  /** Take one event into account. */
  apply({ type, payload }) {
    REDUCERS[type]?.(this, payload);
  }
}

const REDUCERS = {
  __proto__: null, // a type may be called like what every object has
  "process.start": (status, payload) => payload.process === "model" && (status.process = payload),
  "process.end": (status, payload) => payload.process === "model" && endProcess(status),
  "ui.message": (status, { target }) => {
    status.hasMessages = true;
    if (target) status.currentNames.add(target);
  },
  "assistant.message": (status, { speaker }) => speaker && status.currentNames.add(speaker),
  "artifact.write": (status) => (status.hasFiles = true),
};

/** What was said is of an earlier session from now on. */
function endProcess(status) {
  status.process = null;
  for (const name of status.currentNames) status.earlierNames.add(name);
  status.currentNames.clear();
}

export const summonCommand = () => ({ kind: "summon" });

/** Wake these, as the roster has them. */
export const wakeCommand = (members, status) => ({
  kind: "wake",
  agents: members.map(({ name, color, color_name, seat, soul }) => ({
    name,
    color,
    color_name,
    seat,
    has_soul: soul !== "",
    has_transcript: status.earlierNames.has(name),
  })),
});

export const startSessionCommand = (status) => ({
  kind: "session.start",
  has_previous_transcript: status.hasMessages,
  has_artifact_catalog: status.hasFiles,
});

export const endSessionCommand = () => ({ kind: "session.end" });

/** Offer somebody work: one job on each line. */
export const offerWorkCommand = (agent, lines) => ({
  kind: "offer_work",
  agent,
  jobs: lines
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean),
});

/** A colour that may be painted: what a model wrote is never a style. */
export const safeColor = (text) => (/^#(?:[\da-f]{3}|[\da-f]{6})$/i.test(text) ? text : "");

/** Who sleeps, in the order of the seats. */
export const sleepingMembers = (grid) => grid.filter((member) => member?.state === "sleeping");
