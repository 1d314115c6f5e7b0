/** The words of views in German. Sentences of the server's checks are translated by their patterns. */

const ACTION_PHRASES = new Map([
  ["form.submit", "hat das Formular gesendet"],
  ["table.save", "hat die Tabelle gespeichert"],
  ["table.add_row", "hat eine Zeile ergänzt"],
  ["table.delete_row", "hat eine Zeile gelöscht"],
  ["button.click", "hat gewählt"],
  ["a2ui.action", "hat gewählt"],
  ["input.submit", "hat geantwortet"],
]);

/** By pattern of a sentence behind its subject (`client/views/fields.ts`). */
const PROBLEMS = [
  [/ is required$/, " wird gebraucht"],
  [/ is not complete$/, " ist nicht vollständig"],
  [/ must be a text$/, " muss ein Text sein"],
  [/ must be a number$/, " muss eine Zahl sein"],
  [/ must be at most (\d+) characters long$/, " darf höchstens $1 Zeichen haben"],
  [/ must be > (\S+)$/, " muss größer als $1 sein"],
  [/ must be >= (\S+)$/, " muss mindestens $1 sein"],
  [/ must be <= (\S+)$/, " darf höchstens $1 sein"],
  [/ must be in steps of (\S+) from (\S+)$/, " muss in Schritten von $1 ab $2 angegeben werden"],
  [/ must be in steps of (\S+)$/, " muss in Schritten von $1 angegeben werden"],
  [/ must be a date like .*$/, " muss ein Datum sein"],
  [/ must not be before (\S+)$/, " darf nicht vor $1 liegen"],
  [/ must not be after (\S+)$/, " darf nicht nach $1 liegen"],
  [/ must be one of (.*)$/, " muss eines davon sein: $1"],
];

export const GERMAN_VIEW_TEXTS = {
  submit: "Senden",
  save: "Speichern",
  sending: "Wird gesendet",
  sent: "Gesendet",
  cancel: "Abbrechen",
  choose: "Bitte wählen",
  none: "Keine Angabe",
  view: "Ansicht",
  table: "Tabelle",
  replaced: "Durch eine neuere ersetzt",
  closed: "Geschlossen",
  originalView: "Ursprüngliche Ansicht",
  invalidView: "Das kann nicht angezeigt werden.",
  noRows: "Keine Zeilen.",
  addRow: "Zeile ergänzen",
  deleteRow: "Löschen",
  undoDelete: "Zurückholen",
  showMore: "Mehr zeigen",
  rowsShown: (count, length) => `${count} von ${length} Zeilen werden gezeigt.`,
  rowTool: (words, row) => `Zeile ${row}: ${words}`,
  cell: (label, row) => `${label}, Zeile ${row}`,
  time: (label) => `${label}: Uhrzeit`,
  incomplete: "ist nicht vollständig",
  notSent: () => "Nicht gesendet. Versuchen Sie es gleich noch einmal.",
  tooLate: () => "Dafür ist es zu spät.",
  rowGone: "Diese Zeile wurde schon gelöscht.",
  late: {
    view_id: "Das ist geschlossen. Nichts wurde gesendet.",
    shown: "Unten steht eine neuere Fassung. Nichts wurde gesendet.",
    form_id: "Das wurde schon gesendet.",
    button_id: "Das wurde schon gesendet.",
    table_id: "Das wurde schon gespeichert. Warten Sie, bis die Tabelle wieder erscheint.",
  },
  action: (who, { kind }) => `${who ?? "Jemand"} ${ACTION_PHRASES.get(kind) ?? "hat gehandelt"}`,
  button: (label) => `Knopf „${label}“`,
  values: {
    none: "keine Angabe",
    yes: "ja",
    no: "nein",
    number: (value) => value.toLocaleString("de", { useGrouping: false, maximumFractionDigits: 20 }),
    items: (count) => (count === 1 ? "1 Eintrag" : `${count} Einträge`),
    values: (count) => (count === 1 ? "1 Wert" : `${count} Werte`),
    more: (count) => `und ${count} weitere`,
  },
  problem: (sentence) => {
    const [pattern, words] = PROBLEMS.find(([each]) => each.test(sentence)) ?? [];
    return pattern ? sentence.replace(pattern, words) : sentence;
  },
};
