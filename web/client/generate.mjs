// Writes the types of all events, from the schema that `turnlog schema` prints:
//   turnlog schema | node web/client/generate.mjs events.d.ts > web/client/events.d.ts
//   turnlog schema | node web/client/generate.mjs event-types.js > web/client/event-types.js

import { readFileSync } from "node:fs";

const NOTE = "made from `turnlog schema` by generate.mjs; not edited by hand";
const PLAIN = { string: "string", integer: "number", number: "number", boolean: "boolean", null: "null" };

const schema = JSON.parse(readFileSync(0, "utf-8"));
const { payloads } = schema;
const shapes = new Map(Object.values(payloads).flatMap(({ $defs }) => Object.entries($defs)));
const nameOf = ({ $ref }) => $ref.split("/").at(-1);

/** The TypeScript of a schema. */
function typeOf(shape) {
  if (shape.$ref) return nameOf(shape);
  if (shape.enum) return shape.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (shape.anyOf) return shape.anyOf.map(typeOf).join(" | ");
  if (shape.type === "array") return listOf(typeOf(shape.items ?? {}));
  if (shape.type === "object") return `{ [key: string]: ${typeOf(shape.additionalProperties || {})} }`;
  return PLAIN[shape.type] ?? "Json";
}

const listOf = (inner) => (/[ |]/.test(inner) ? `Array<${inner}>` : `${inner}[]`);

/** What has a default is left out on the wire instead of being null. */
function fieldOf([name, shape], required) {
  const optional = !required.includes(name) && "default" in shape;
  const present =
    optional && shape.anyOf ? { ...shape, anyOf: shape.anyOf.filter(({ type }) => type !== "null") } : shape;
  const about = shape.description ? `  /** ${shape.description} */\n` : "";
  return `${about}  ${name}${optional ? "?" : ""}: ${typeOf(present)};\n`;
}

function interfaceOf(name, { description, properties, required = [] }) {
  const about = description ? `/** ${description.replaceAll(/\s*\n\s*/g, " ")} */\n` : "";
  const fields = Object.entries(properties).map((property) => fieldOf(property, required));
  return `${about}export interface ${name} {\n${fields.join("")}}\n`;
}

function envelope() {
  const { properties, required } = schema.envelope.$defs.Envelope;
  const fields = Object.entries(properties).map(([name, shape]) => {
    if (name === "type") return "  type: Type;\n";
    return name === "payload" ? "  payload: Payload;\n" : fieldOf([name, shape], required);
  });
  return `/** An event in its place in the log. */
export interface Envelope<Type extends string = string, Payload = Json> {\n${fields.join("")}}\n`;
}

const declarations = () => `// The events: ${NOTE}.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

${envelope()}
/** The payload of every type. An application adds its own by declaring this interface again. */
export interface Payloads {
${Object.entries(payloads)
  .map(([type, shape]) => `  "${type}": ${nameOf(shape)};\n`)
  .join("")}}

export type EventType = keyof Payloads & string;

/** Any event; its \`type\` says which payload it has. */
export type Event = { [Type in EventType]: Envelope<Type, Payloads[Type]> }[EventType];

${[...shapes].map(([name, shape]) => interfaceOf(name, shape)).join("\n")}`;

const names = () => `/** The types of the package's own events: ${NOTE}. */
export const TYPES = new Set([
${Object.keys(payloads)
  .map((type) => `  "${type}",\n`)
  .join("")}]);
`;

const MADE = { "events.d.ts": declarations, "event-types.js": names };
process.stdout.write(MADE[process.argv[2]]());
