/** Gives each agent a colour that depends on its name alone. Pure. */

const COLOURS = 6; // `.colour-0` and so on in talk.css

export function agentColour(name) {
  let sum = 0;
  for (const character of name) sum = (31 * sum + character.codePointAt(0)) >>> 0;
  return sum % COLOURS;
}
