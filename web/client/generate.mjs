// Prints the TypeScript types of all events or of the nodes of views, or the set of the events' names. Input: the output of
// `turnlog schema`.
//   turnlog schema | node web/client/generate.mjs events.ts > web/client/events.ts
//   turnlog schema | node web/client/generate.mjs event-types.ts > web/client/event-types.ts
//   turnlog schema | node web/client/generate.mjs views/view-nodes.ts > web/client/views/view-nodes.ts

import { readFileSync } from "node:fs";

const NOTE = "generated from `turnlog schema` by generate.mjs; do not edit";
// Payload classes that a browser or TypeScript has too; in TypeScript they end with "Info".
const PLATFORM_NAMES = new Set([
  "Document",
  "Element",
  "Event",
  "File",
  "Image",
  "Location",
  "Range",
  "Record",
  "Request",
  "Response",
  "Text",
]);
// The nodes of views: their Python names say less among the types of a page.
const NODE_NAMES = new Map([
  ["Screen", "ScreenNode"],
  ["Section", "SectionNode"],
  ["Text", "TextNode"],
  ["Form", "FormNode"],
  ["TableEditor", "TableEditorNode"],
  ["Button", "ButtonNode"],
  ["Option", "FieldOption"],
]);
const SCALARS = { string: "string", integer: "number", number: "number", boolean: "boolean", null: "null" };

const schema = JSON.parse(readFileSync(0, "utf-8"));
const { payloads, view } = schema;
const shapes = new Map(Object.values(payloads).flatMap(({ $defs }) => Object.entries($defs)));
const typeName = (name) => NODE_NAMES.get(name) ?? (PLATFORM_NAMES.has(name) ? `${name}Info` : name);
const referenceName = ({ $ref }) => typeName($ref.split("/").at(-1));

/** Return the TypeScript type of a JSON schema. */
function toTypeScript(shape) {
  if (shape.$ref) return referenceName(shape);
  if (shape.enum) return shape.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (shape.anyOf) return shape.anyOf.map(toTypeScript).join(" | ");
  if (shape.type === "array") return arrayType(toTypeScript(shape.items ?? {}));
  if (shape.type === "object") return `{ [key: string]: ${toTypeScript(shape.additionalProperties || {})} }`;
  return SCALARS[shape.type] ?? "Json";
}

const arrayType = (inner) => (/[ |]/.test(inner) ? `Array<${inner}>` : `${inner}[]`);

/** Declare one field. The wire omits a field that has its default value: it is never null there. */
function fieldDeclaration([name, shape], required) {
  const optional = !required.includes(name) && "default" in shape;
  const present =
    optional && shape.anyOf ? { ...shape, anyOf: shape.anyOf.filter(({ type }) => type !== "null") } : shape;
  const about = shape.description ? `  /** ${shape.description} */\n` : "";
  return `${about}  ${name}${optional ? "?" : ""}: ${toTypeScript(present)};\n`;
}

function interfaceDeclaration(name, { description, properties, required = [] }) {
  const about = description ? `/** ${description.replaceAll(/\s*\n\s*/g, " ")} */\n` : "";
  const fields = Object.entries(properties).map((property) => fieldDeclaration(property, required));
  return `${about}export interface ${typeName(name)} {\n${fields.join("")}}\n`;
}

function envelope() {
  const { properties, required } = schema.envelope.$defs.Envelope;
  const fields = Object.entries(properties).map(([name, shape]) => {
    if (name === "type") return "  type: Type;\n";
    return name === "payload" ? "  payload: Payload;\n" : fieldDeclaration([name, shape], required);
  });
  return `/** An event as it is stored in the log. */
export interface Envelope<Type extends string = string, Payload = Json> {\n${fields.join("")}}\n`;
}

const declarations = () => `// The events: ${NOTE}.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

${envelope()}
/** The payload of every type. An application adds its own by declaring this interface again. */
export interface Payloads {
${Object.entries(payloads)
  .map(([type, shape]) => `  "${type}": ${referenceName(shape)};\n`)
  .join("")}}

export type EventType = keyof Payloads & string;

/** Any event; its \`type\` tells which payload it has. */
export type LogEvent = { [Type in EventType]: Envelope<Type, Payloads[Type]> }[EventType];

${[...shapes].map(([name, shape]) => interfaceDeclaration(name, shape)).join("\n")}`;

const typeSet = () => `/** The types of the package's own events: ${NOTE}. */
export const TYPES: ReadonlySet<string> = new Set([
${Object.keys(payloads)
  .map((type) => `  "${type}",\n`)
  .join("")}]);
`;

const unionOf = ({ anyOf }) => anyOf.map((shape) => `\n  | ${toTypeScript(shape)}`).join("");

const viewNodes = () => `// The nodes of a view of the kind a2ui.v1: ${NOTE}.

import type { Json } from "../events.js";

/** The tree of a view. */
export type ViewNode =${unionOf(view)};

/** A field of a form, or a column of a table. */
export type ViewField =${unionOf(view.$defs.Form.properties.fields.items)};

${Object.entries(view.$defs)
  .map(([name, shape]) => interfaceDeclaration(name, shape))
  .join("\n")}`;

const OUTPUTS = { "events.ts": declarations, "event-types.ts": typeSet, "views/view-nodes.ts": viewNodes };
process.stdout.write(OUTPUTS[process.argv[2]]());
