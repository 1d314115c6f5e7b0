/**
 * The team on its 3 x 3 grid: who is hatching, alive or asleep (docs/protocol.md, section 9.7). The same as
 * `turnlog.team.roster`.
 *
 * An agent is known by its seat, 0 to 8; names are not unique. A summon names nobody, a wake names seats; both
 * are over with a status, the end of their turn or of a process, and who never joined is forgotten then. What is
 * for one channel is a team of its own.
 */

import { channelOf } from "./narration.js";

const SEATS = 9;
const EVERYBODY = ""; // the team of those events that have no channel
const LOOKS = { color: "", color_name: "", gender: "man", eyes: "default", mouth: "default", soul: "" };
const EXPECTS = new Set(["summon", "wake"]);

const member = (known) => ({ ...LOOKS, born: null, last_alive: null, ...known });

/** The agents of one channel by seat; `turn` is the turn that makes those come who are expected. */
class Team {
  seats = new Map();
  hatching = null;
  turn = null;

  /** Who sits there, or from now on this one. */
  seat(number, known) {
    if (!this.seats.has(number)) this.seats.set(number, member({ seat: number, ...known }));
    return this.seats.get(number);
  }

  /** Nobody hatches any more; who never joined is gone. */
  settle() {
    this.hatching = this.turn = null;
    for (const [seat, one] of this.seats) {
      if (one.born === null) this.seats.delete(seat);
      else if (one.state === "hatching") one.state = "sleeping";
    }
  }

  /** Everybody else sleeps. */
  rest(awake = new Map()) {
    this.settle();
    for (const [seat, one] of this.seats) if (!awake.has(seat)) one.state = "sleeping";
  }
}

export class Roster {
  /** @internal */ teams = new Map();

  /** Take one event into account. */
  apply(event) {
    STEPS.get(event.type)?.(this, event, event.payload);
  }

  /** @internal The team that an event is about. */
  team(event) {
    const channel = channelOf(event) ?? EVERYBODY;
    if (!this.teams.has(channel)) this.teams.set(channel, new Team());
    return this.teams.get(channel);
  }

  /** The teams as JSON values, each with its nine places. */
  report() {
    const named = [...this.teams].sort(([one], [other]) => (one < other ? -1 : 1));
    return named.map(([channel, { hatching, seats }]) => ({
      channel: channel || null,
      hatching,
      grid: Array.from({ length: SEATS }, (_, seat) => seats.get(seat) ?? null),
    }));
  }
}

function command(roster, event, { command: { kind, agents = [] } }) {
  if (!EXPECTS.has(kind)) return;
  const team = roster.team(event);
  Object.assign(team, { hatching: event.ts, turn: event.trace_id ?? null });
  for (const { name, seat, color, color_name } of agents) {
    const one = team.seat(seat, { name, state: "hatching", color, color_name });
    if (one.state === "sleeping") one.state = "hatching";
  }
}

/** Somebody is here; who joins again keeps its birth, another one on the seat begins anew. */
function join(roster, event, { face, created_at, ...looks }) {
  const { seats } = roster.team(event);
  const before = seats.get(looks.seat);
  const born = (before?.name === looks.name && before.born) || created_at || event.ts;
  seats.set(looks.seat, member({ ...looks, ...face, state: "alive", born, last_alive: event.ts }));
}

/** Who is there. Somebody who is alive and unknown is known from now on; one who is not is no ghost. */
function status(roster, event, { agents }) {
  const team = roster.team(event);
  const last = new Map(agents.map((listed) => [listed.seat, listed]));
  const awake = new Map([...last].filter(([, listed]) => listed.status !== "shutdown"));
  for (const [seat, { name }] of awake) {
    const one = team.seat(seat, { name, state: "alive" });
    Object.assign(one, { state: "alive", born: one.born || event.ts, last_alive: event.ts });
  }
  team.rest(awake);
}

/** A command that opened no turn of its own is carried out by the next one. */
function agentStart(roster, event) {
  const team = roster.teams.get(channelOf(event) ?? EVERYBODY);
  if (team?.hatching && team.turn === null) team.turn = event.trace_id ?? null;
}

/** The turn of a summon or a wake is over. */
function agentEnd(roster, event, { stop_reason }) {
  const team = roster.teams.get(channelOf(event) ?? EVERYBODY);
  const over = !event.depth && stop_reason !== "handoff";
  if (over && team && team.turn !== null && team.turn === event.trace_id) team.settle();
}

const STEPS = new Map([
  ["ui.command", command],
  ["roster.join", join],
  ["roster.status", status],
  ["agent.start", agentStart],
  ["agent.end", agentEnd],
  ["process.end", ({ teams }) => teams.forEach((team) => team.rest())],
]);
