/**
 * All words of the participant's page, by language. A new language is a new row: `npm run unit` fails while it lacks a
 * text. English is the fallback of a browser whose language has no row.
 */

import { VIEW_TEXTS } from "../console/views/texts.js";
import { GERMAN_VIEW_TEXTS } from "./view-texts-de.js";

const ENGLISH = {
  conversation: "Conversation",
  messages: "Messages",
  you: "You",
  assistant: "Assistant",
  someone: "A participant",
  host: "Host",
  youAre: (name) => `You are ${name}`,
  alsoHere: (names) => `also here: ${names}`,
  andMore: (count) => `and ${count} more`,
  loading: "The conversation is loading",
  empty: "No messages yet. Write the first one.",
  showEarlier: "Show earlier messages",
  latest: "Latest messages",
  working: (name) => `${name} is working`,
  writing: (name) => `${name} is writing`,
  waitingForYou: "Your answer is needed.",
  cancelsQuestion: "A message cancels the question.",
  showQuestion: "Show",
  handoff: (name) => `${name} continues`,
  queued: "Waits for its turn",
  sendingMessage: "Sending",
  notSent: "Not sent.",
  tryAgain: "Try again",
  discard: "Discard",
  stopped: (name) => (name ? `Stopped by ${name}` : "Stopped"),
  stoppedByYou: "You stopped this",
  cutOff: "The answer was cut off. Ask again to get all of it.",
  failed: "Something went wrong. Send your message again in a moment.",
  source: "Source",
  sources: "Sources",
  copy: "Copy",
  copied: "Copied",

  message: "Message",
  placeholder: "Write a message",
  send: "Send",
  stop: "Stop",
  attach: "Attach files",
  dropHere: "Drop files here",
  attachments: "Files to send",
  remove: (name) => `Remove ${name}`,
  uploading: (name, percent) => `Uploading ${name}: ${percent} %`,
  uploaded: (name) => `${name} is ready to send`,
  uploadFailed: (name) => `${name} was not uploaded. Remove it and try again.`,
  tooManyUploads: (name) => `${name} was not uploaded: too many files in a short time. Try again later.`,
  tooLarge: (name, limit) => `${name} is too large. Files of this kind may have up to ${limit}.`,
  wrongType: (name, kinds) => `${name} cannot be sent. These files can: ${kinds}.`,
  emptyFile: (name) => `${name} is empty.`,
  tooMany: (count) => `One message can have up to ${count} ${count === 1 ? "file" : "files"}.`,
  waitForUploads: "The files are still uploading.",
  file: "File",
  image: "Image",
  download: (name) => `Download ${name}`,
  downloadFailed: "This file could not be loaded. Please try again.",
  fileKinds: { image: "images", pdf: "PDF", text: "text files" },

  offline: "No connection. What you see may be out of date.",
  reconnecting: "Connecting again",
  unreachable: "The server does not answer. It is tried again.",
  tryNow: "Try now",
  signedOut: "You are not signed in, or your invitation has ended. Open your link again, or ask for a new one.",
  noAccess: "This conversation does not exist, or you have no access to it. Ask for a new link.",
  otherPerson: "Another person has signed in with this browser. Load the page again.",
  refused: "The server refused the connection. Load the page again in a moment.",
  closed: "This conversation is closed.",
  closedBy: (name) => `${name} closed this conversation.`,
  closedByYou: "You closed this conversation.",
  closeReason: (reason) => `Reason: ${reason}`,

  approvalTitle: "May this be done?",
  approve: "Allow",
  deny: "Do not allow",
  note: "Note (optional)",
  expires: (time) => `Decide until ${time}`,
  details: "Details",
  approved: (name) => (name ? `${name} allowed this` : "Allowed"),
  denied: (name) => (name ? `${name} did not allow this` : "Not allowed"),
  youApproved: "You allowed this",
  youDenied: "You did not allow this",
  expired: "Nobody decided in time",
  inputTitle: "Some information is needed",
  choiceTitle: "Please choose",
  confirmTitle: "Please confirm",
  answerTitle: "Please answer",
  answer: "Answer",
  otherAnswer: "Another answer",
  yes: "Yes",
  no: "No",
  skip: "I cannot answer this",
  answered: (name) => (name ? `${name} answered` : "Answered"),
  youAnswered: "You answered",
  questionClosed: "No longer needed",
  answeredElsewhere: "This was already answered.",
  required: "This is required.",
  view: VIEW_TEXTS,
};

const GERMAN = {
  conversation: "Unterhaltung",
  messages: "Nachrichten",
  you: "Sie",
  assistant: "Assistent",
  someone: "Jemand",
  host: "Gastgeber",
  youAre: (name) => `Sie sind ${name}`,
  alsoHere: (names) => `auch hier: ${names}`,
  andMore: (count) => `und ${count} weitere`,
  loading: "Die Unterhaltung wird geladen",
  empty: "Noch keine Nachrichten. Schreiben Sie die erste.",
  showEarlier: "Frühere Nachrichten zeigen",
  latest: "Neueste Nachrichten",
  working: (name) => `${name} arbeitet`,
  writing: (name) => `${name} schreibt`,
  waitingForYou: "Ihre Antwort wird gebraucht.",
  cancelsQuestion: "Eine Nachricht bricht die Frage ab.",
  showQuestion: "Zeigen",
  handoff: (name) => `${name} macht weiter`,
  queued: "Wartet, bis sie an der Reihe ist",
  sendingMessage: "Wird gesendet",
  notSent: "Nicht gesendet.",
  tryAgain: "Erneut versuchen",
  discard: "Verwerfen",
  stopped: (name) => (name ? `Angehalten von ${name}` : "Angehalten"),
  stoppedByYou: "Von Ihnen angehalten",
  cutOff: "Die Antwort wurde abgebrochen. Fragen Sie noch einmal, um sie ganz zu erhalten.",
  failed: "Etwas ist schiefgegangen. Senden Sie Ihre Nachricht gleich noch einmal.",
  source: "Quelle",
  sources: "Quellen",
  copy: "Kopieren",
  copied: "Kopiert",

  message: "Nachricht",
  placeholder: "Nachricht schreiben",
  send: "Senden",
  stop: "Anhalten",
  attach: "Dateien anhängen",
  dropHere: "Dateien hier ablegen",
  attachments: "Dateien zum Senden",
  remove: (name) => `${name} entfernen`,
  uploading: (name, percent) => `${name} wird hochgeladen: ${percent} %`,
  uploaded: (name) => `${name} kann gesendet werden`,
  uploadFailed: (name) => `${name} wurde nicht hochgeladen. Entfernen Sie die Datei und versuchen Sie es erneut.`,
  tooManyUploads: (name) =>
    `${name} wurde nicht hochgeladen: zu viele Dateien in kurzer Zeit. Versuchen Sie es später.`,
  tooLarge: (name, limit) => `${name} ist zu groß. Dateien dieser Art dürfen bis zu ${limit} haben.`,
  wrongType: (name, kinds) => `${name} kann nicht gesendet werden. Diese Dateien gehen: ${kinds}.`,
  emptyFile: (name) => `${name} ist leer.`,
  tooMany: (count) => `Eine Nachricht kann bis zu ${count} ${count === 1 ? "Datei" : "Dateien"} haben.`,
  waitForUploads: "Die Dateien werden noch hochgeladen.",
  file: "Datei",
  image: "Bild",
  download: (name) => `${name} herunterladen`,
  downloadFailed: "Die Datei konnte nicht geladen werden. Bitte versuchen Sie es noch einmal.",
  fileKinds: { image: "Bilder", pdf: "PDF", text: "Textdateien" },

  offline: "Keine Verbindung. Was Sie sehen, kann veraltet sein.",
  reconnecting: "Verbindung wird wiederhergestellt",
  unreachable: "Der Server antwortet nicht. Es wird weiter versucht.",
  tryNow: "Jetzt versuchen",
  signedOut:
    "Sie sind nicht angemeldet, oder Ihre Einladung ist abgelaufen. Öffnen Sie Ihren Link erneut oder bitten Sie um einen neuen.",
  noAccess: "Diese Unterhaltung gibt es nicht, oder Sie haben keinen Zugang. Bitten Sie um einen neuen Link.",
  otherPerson: "In diesem Browser hat sich jemand anderes angemeldet. Laden Sie die Seite neu.",
  refused: "Der Server hat die Verbindung abgelehnt. Laden Sie die Seite gleich noch einmal.",
  closed: "Diese Unterhaltung ist geschlossen.",
  closedBy: (name) => `${name} hat diese Unterhaltung geschlossen.`,
  closedByYou: "Sie haben diese Unterhaltung geschlossen.",
  closeReason: (reason) => `Grund: ${reason}`,

  approvalTitle: "Darf das geschehen?",
  approve: "Erlauben",
  deny: "Nicht erlauben",
  note: "Anmerkung (freiwillig)",
  expires: (time) => `Entscheiden Sie bis ${time}`,
  details: "Einzelheiten",
  approved: (name) => (name ? `${name} hat das erlaubt` : "Erlaubt"),
  denied: (name) => (name ? `${name} hat das nicht erlaubt` : "Nicht erlaubt"),
  youApproved: "Sie haben das erlaubt",
  youDenied: "Sie haben das nicht erlaubt",
  expired: "Niemand hat rechtzeitig entschieden",
  inputTitle: "Einige Angaben werden gebraucht",
  choiceTitle: "Bitte wählen Sie",
  confirmTitle: "Bitte bestätigen Sie",
  answerTitle: "Bitte antworten Sie",
  answer: "Antwort",
  otherAnswer: "Eine andere Antwort",
  yes: "Ja",
  no: "Nein",
  skip: "Das kann ich nicht beantworten",
  answered: (name) => (name ? `${name} hat geantwortet` : "Beantwortet"),
  youAnswered: "Sie haben geantwortet",
  questionClosed: "Nicht mehr nötig",
  answeredElsewhere: "Das wurde schon beantwortet.",
  required: "Das wird gebraucht.",
  view: GERMAN_VIEW_TEXTS,
};

export const LANGUAGES = { en: ENGLISH, de: GERMAN };
export const DEFAULT_LANGUAGE = "en";

/** Return the first of some language tags that has a row, such as "de" for "de-AT". */
export function chooseLanguage(tags) {
  const names = tags.map((tag) => String(tag ?? "").toLowerCase());
  const bases = names.flatMap((name) => [name, name.split("-")[0]]);
  return bases.find((name) => Object.hasOwn(LANGUAGES, name)) ?? DEFAULT_LANGUAGE;
}

/** Return the first of some language tags that is a region of the language, such as "en-GB", or the language. */
export function chooseLocale(language, tags) {
  const regions = tags.map((tag) => String(tag ?? "")).filter((tag) => tag.toLowerCase().startsWith(`${language}-`));
  return regions.find(isLocale) ?? language;
}

/** Return whether the browser takes a tag: formatting with any other one throws. */
function isLocale(tag) {
  try {
    return Intl.DateTimeFormat.supportedLocalesOf(tag).length > 0;
  } catch {
    return false;
  }
}
