/**
 * What a pending call asks of a person, and how the answer looks. Pure.
 *
 *     approval   may the call run? Bound to the call and its arguments
 *     input      a tool in the server asks: its questions are fields, the answer is a `ui.action`
 *     choice     a tool of the page with `options` or `choices`: the value of one of them
 *     confirm    a tool of the page with a `question`, or with "confirm" in its name: true or false
 *     answer     any other tool of the page: a text, or JSON
 *
 * Questions come from tools and models: an argument that is a valid view field becomes one, any other a text field.
 */

import { validateView } from "../../client/views/schema.js";

const MAX_CHOICES = 50; // a person does not read more buttons
const isName = (value) => typeof value === "string" && value !== "";

export const pendingCallKind = (call) => KINDS.find(([, holds]) => holds(call))[0];

/** Return a key of the question: a call may ask a second one. */
export const questionKey = (call) =>
  `${pendingCallKind(call)} ${call.approval ? call.approval.args_hash : call.awaited.seq}`;

/** Return the question's text, or null. */
export const promptText = ({ args }) => PROMPT_ARGUMENTS.map((name) => own(args, name)).find(isName) ?? null;

/** Return the choices in arguments as [{value, label}]; empty if they are not valid choices. */
export function parseChoices(args) {
  const list = own(args, "options") ?? own(args, "choices");
  if (!Array.isArray(list) || list.length === 0 || list.length > MAX_CHOICES) return [];
  const choices = list.map((item) => {
    const value = item !== null && typeof item === "object" ? own(item, "value") : item;
    return { value, label: String(own(item, "label") ?? value) };
  });
  return choices.every(({ value }) => SCALAR_TYPES.has(typeof value)) ? choices : [];
}

/** Return the fields of an input. The answer to a lone `question` is called `answer`. */
export function inputFields(args) {
  const choices = parseChoices(args);
  const questions = Object.entries(args).filter(([name]) => choices.length === 0 || !CHOICE_ARGUMENTS.has(name));
  const fields = questions.map(([name, said]) => inputField(name, said));
  if (fields.length === 0) fields.push(inputField("answer", "Answer"));
  const [{ name, label }] = fields;
  if (name === "answer" && choices.length > 0 && fields.length === 1) return [selectField(name, label, choices)];
  return fields;
}

function inputField(name, said) {
  if (name === "question" && isName(said)) return textField("answer", said);
  if (isName(said)) return textField(name, said);
  const choices = parseChoices({ options: said });
  if (choices.length > 0) return selectField(name, name, choices);
  const field = { label: name, ...said, name };
  const fits = validateView({ type: "form", id: "input", fields: [{ ...field, name: "field" }] }) === null;
  return fits ? field : textField(name, name);
}

const textField = (name, label) => ({ type: "field.text", name, label, multiline: false });
const selectField = (name, label, choices) => ({
  type: "field.select",
  name,
  label,
  options: choices.map((choice) => ({ ...choice, value: String(choice.value) })),
});

const PROMPT_ARGUMENTS = ["question", "prompt", "message"];
const SCALAR_TYPES = new Set(["string", "number", "boolean"]);
const CHOICE_ARGUMENTS = new Set(["options", "choices"]);
const own = (value, name) => (value != null && Object.hasOwn(Object(value), name) ? value[name] : undefined);

const KINDS = [
  ["approval", ({ approval }) => approval !== null],
  ["input", ({ executor }) => executor === "backend"],
  ["choice", ({ awaited }) => parseChoices(awaited.args).length > 0],
  ["confirm", ({ awaited, tool }) => isName(own(awaited.args, "question")) || /(^|_)confirm(_|$)/i.test(tool)],
  ["answer", () => true],
];
