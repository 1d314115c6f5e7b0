/** What entries of a chat say, in plain words. */

const LINE_CHARS = 160;

/** A value in one line. */
export function oneLine(value) {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  const line = text.slice(0, 2 * LINE_CHARS).replace(/\s+/g, " ").trim();
  return line.length > LINE_CHARS || text.length > 2 * LINE_CHARS ? `${line.slice(0, LINE_CHARS)}…` : line;
}

/** How an agent ended that did not come to its end. */
const ENDS = {
  cancelled: "was stopped",
  error: "ended with an error",
  timeout: "ran out of time",
  max_steps: "reached its limit of steps",
  max_tokens: "reached the limit of its answer's length",
  context_window: "has no room left in its context",
  refusal: "refused to answer",
};

export const endOf = (name, reason) => `${name ?? "The agent"} ${ENDS[reason] ?? `ended: ${reason}`}`;

/** What a person did on a view. */
const ACTIONS = {
  "form.submit": ({ form_id, values }) => `sent the form ${form_id}: ${pairs(values)}`,
  "table.save": ({ table_id, rows, deleted = [] }) =>
    `saved the table ${table_id}: ${counted(rows)}${deleted.length > 0 ? `, ${counted(deleted)} deleted` : ""}`,
  "table.add_row": ({ table_id }) => `added a row to ${table_id}`,
  "table.delete_row": ({ table_id, row_id }) => `deleted row ${row_id} of ${table_id}`,
  "button.click": ({ button_id }) => `pressed ${button_id}`,
  "input.submit": ({ values }) => `answered: ${pairs(values)}`,
};

export const actionOf = (who, action) =>
  `${who ?? "Somebody"} ${ACTIONS[action.kind]?.(action) ?? `did ${action.kind}`}`;

const counted = ({ length }) => `${length} row${length === 1 ? "" : "s"}`;
const pairs = (values) =>
  oneLine(Object.entries(values ?? {}).map(([name, value]) => `${name} ${oneLine(value)}`).join(", "));

/** What a person told the server to do. */
export const commandOf = (who, { kind }) => `${who ?? "Somebody"} asked: ${kind.replace(/[._]/g, " ")}`;

/** The state of a call, and how it looks. */
export const STATES = {
  writing: ["Writing", "busy"],
  queued: ["Queued", ""],
  running: ["Running", "busy"],
  waiting: ["Waiting for you", "busy"],
  done: ["Done", "good"],
  error: ["Error", "bad"],
  denied: ["Denied", "bad"],
  aborted: ["Stopped", ""],
};

export const DECISIONS = { approve: "Approved", deny: "Denied", expired: "Not decided in time" };
