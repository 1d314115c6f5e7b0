/**
 * The words of views and of their errors, in English. A session may bring another table (`viewTexts`): the page of
 * participants has one for each language. `problem` translates a whole sentence of `validateField` or of the server.
 */

import { actionLabel, VALUE_TEXTS } from "../store/labels.js";

export const VIEW_TEXTS = {
  submit: "Submit",
  save: "Save",
  sending: "Sending",
  sent: "Sent",
  cancel: "Cancel",
  choose: "Choose",
  none: "None",
  view: "View",
  table: "Table",
  replaced: "Replaced by a newer one",
  closed: "Closed",
  originalView: "Original view",
  invalidView: "This view cannot be shown.",
  noRows: "No rows.",
  addRow: "Add row",
  deleteRow: "Delete",
  undoDelete: "Undo",
  showMore: "Show more",
  rowsShown: (count, length) => `${count} of ${length} rows are shown.`,
  rowTool: (words, row) => `${words} row ${row}`,
  cell: (label, row) => `${label}, row ${row}`,
  time: (label) => `${label}: time`,
  incomplete: "is not complete",
  notSent: (message) => `Not sent: ${message}`,
  tooLate: (message) => `Too late: ${message}.`,
  rowGone: "This row was already deleted.",
  late: {
    view_id: "This is closed. Nothing was sent.",
    shown: "A newer version is shown below. Nothing was sent.",
    form_id: "This was already sent.",
    button_id: "This was already sent.",
    table_id: "This was already saved. Wait until the table is shown again.",
  },
  action: actionLabel,
  button: (label) => `Button “${label}”`,
  values: VALUE_TEXTS,
  problem: (sentence) => sentence,
};

export const viewTextsOf = (session) => session.viewTexts ?? VIEW_TEXTS;
