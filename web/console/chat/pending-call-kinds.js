/**
 * What a call asks of a person, and what the answer looks like. Pure.
 *
 *     approval   may it run? Bound to the call and its arguments
 *     input      a tool in the server asks: its questions are fields, the answer is a `ui.action`
 *     choice     a tool of the page with `options` or `choices`: the value of one of them
 *     confirm    a tool of the page with a `question`, or named so: true or false
 *     answer     any other tool of the page: a text, or JSON
 *
 * Questions come from tools and models: what looks like a field of a view is one, everything else is asked as text.
 */

import { validateView } from "../../client/views/schema.js";

const CHOICES = 50; // more buttons than anybody reads
const isName = (value) => typeof value === "string" && value !== "";

/** Which of the kinds a waiting call is. */
export const kindOf = (call) => KINDS.find(([, holds]) => holds(call))[0];

/** What a waiting call asks, so that a second question of the same call is another one. */
export const questionOf = (call) => `${kindOf(call)} ${call.approval ? call.approval.args_hash : call.awaited.seq}`;

/** The question in words, if the arguments have one. */
export const wordsOf = ({ args }) => WORDS.map((name) => own(args, name)).find(isName) ?? null;

/** What can be chosen: [{value, label}], or nothing. */
export function choicesOf(args) {
  const list = own(args, "options") ?? own(args, "choices");
  if (!Array.isArray(list) || list.length === 0 || list.length > CHOICES) return [];
  const choices = list.map((item) => {
    const value = item !== null && typeof item === "object" ? own(item, "value") : item;
    return { value, label: String(own(item, "label") ?? value) };
  });
  return choices.every(({ value }) => PLAIN.has(typeof value)) ? choices : [];
}

/** The fields of an input; the answer to a lone `question` is called `answer`. */
export function fieldsOf(args) {
  const choices = choicesOf(args);
  const asked = Object.entries(args).filter(([name]) => choices.length === 0 || !LISTS.has(name));
  const fields = asked.map(([name, said]) => fieldOf(name, said));
  if (fields.length === 0) fields.push(fieldOf("answer", "Answer"));
  const [{ name, label }] = fields;
  if (name === "answer" && choices.length > 0 && fields.length === 1) return [selectOf(name, label, choices)];
  return fields;
}

function fieldOf(name, said) {
  if (name === "question" && isName(said)) return text("answer", said);
  if (isName(said)) return text(name, said);
  const choices = choicesOf({ options: said });
  if (choices.length > 0) return selectOf(name, name, choices);
  const field = { label: name, ...said, name };
  const fits = validateView({ type: "form", id: "input", fields: [{ ...field, name: "field" }] }) === null;
  return fits ? field : text(name, name);
}

const text = (name, label) => ({ type: "field.text", name, label, multiline: false });
const selectOf = (name, label, choices) => ({
  type: "field.select",
  name,
  label,
  options: choices.map((choice) => ({ ...choice, value: String(choice.value) })),
});

const WORDS = ["question", "prompt", "message"];
const PLAIN = new Set(["string", "number", "boolean"]);
const LISTS = new Set(["options", "choices"]);
const own = (value, name) => (value != null && Object.hasOwn(Object(value), name) ? value[name] : undefined);

const KINDS = [
  ["approval", ({ approval }) => approval !== null],
  ["input", ({ executor }) => executor === "backend"],
  ["choice", ({ awaited }) => choicesOf(awaited.args).length > 0],
  ["confirm", ({ awaited, tool }) => isName(own(awaited.args, "question")) || /(^|_)confirm(_|$)/i.test(tool)],
  ["answer", () => true],
];
