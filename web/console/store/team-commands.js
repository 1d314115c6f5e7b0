/**
 * The commands (`ui.command`) that a person may send to a process and its team, and a fold of what they need to know:
 * whether the process runs, who has spoken, whether files were written.
 */

export class ProcessStatus {
  process = null; // process.start of the running model process, or null
  earlierNames = new Set(); // members with messages from or to them, of ended processes
  currentNames = new Set(); // the same, of the running process
  hasMessages = false;
  hasFiles = false;

  apply({ type, payload }) {
    REDUCERS[type]?.(this, payload);
  }
}

const REDUCERS = {
  __proto__: null, // a type may be named like a member of Object.prototype
  "process.start": (status, payload) => payload.process === "model" && (status.process = payload),
  "process.end": (status, payload) => payload.process === "model" && endProcess(status),
  "ui.message": (status, { target }) => {
    status.hasMessages = true;
    if (target) status.currentNames.add(target);
  },
  "assistant.message": (status, { speaker }) => speaker && status.currentNames.add(speaker),
  "artifact.write": (status) => (status.hasFiles = true),
};

function endProcess(status) {
  status.process = null;
  for (const name of status.currentNames) status.earlierNames.add(name);
  status.currentNames.clear();
}

export const summonCommand = () => ({ kind: "summon" });

/** Return the command that wakes these members of the roster. */
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

/** Return the command that offers work; `lines` has one job per line. */
export const offerWorkCommand = (agent, lines) => ({
  kind: "offer_work",
  agent,
  jobs: lines
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean),
});

/** Return a colour if the text is a hex colour, else "": a model's text is never a style. */
export const safeColor = (text) => (/^#(?:[\da-f]{3}|[\da-f]{6})$/i.test(text) ? text : "");

export const sleepingMembers = (grid) => grid.filter((member) => member?.state === "sleeping");
