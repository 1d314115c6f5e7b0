/** Gives each agent a colour that depends on its name alone: the same in the chat, the events and the timeline. Pure. */

const COLOURS = 6; // `.agent-colour-0` and so on in console.css

/** Return the class of an agent's colour; "" without a name. */
export function agentColourClass(name) {
  if (!name) return "";
  let sum = 0;
  for (const character of name) sum = (31 * sum + character.codePointAt(0)) >>> 0;
  return `agent-colour-${sum % COLOURS}`;
}
