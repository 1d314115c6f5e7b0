/**
 * Folds events to teams on a 3 x 3 grid: members hatching, alive or asleep (docs/protocol.md, section 9.7). Same as
 * `turnlog.state.roster`.
 *
 * A member is identified by its seat, 0 to 8; names are not unique. A summon expects members, a wake names seats. Both
 * end with a status, the end of their turn or the end of a process; a member that never joined is removed then. Each
 * channel has its own team.
 */

import { visibleChannel } from "./event-text.js";

const SEATS = 9;
const NO_CHANNEL = ""; // the team of events without a channel
const DEFAULT_LOOKS = { color: "", color_name: "", gender: "man", eyes: "default", mouth: "default", soul: "" };
const HATCHING_COMMANDS = new Set(["summon", "wake"]);

const newMember = (known) => ({ ...DEFAULT_LOOKS, born: null, last_alive: null, ...known });

/** The members of one channel by seat; `turn` carries out the command that expects members. */
class Team {
  seats = new Map();
  hatching = null;
  turn = null;

  /** Return the member on a seat; add one if it is free. */
  getOrAdd(number, known) {
    if (!this.seats.has(number)) this.seats.set(number, newMember({ seat: number, ...known }));
    return this.seats.get(number);
  }

  /** End the hatching: members that never joined are removed, the others sleep. */
  endHatching() {
    this.hatching = this.turn = null;
    for (const [seat, one] of this.seats) {
      if (one.born === null) this.seats.delete(seat);
      else if (one.state === "hatching") one.state = "sleeping";
    }
  }

  /** End the hatching, and put all members to sleep except those on the seats of `awake`. */
  sleepExcept(awake = new Map()) {
    this.endHatching();
    for (const [seat, one] of this.seats) if (!awake.has(seat)) one.state = "sleeping";
  }
}

export class Roster {
  /** @internal */ teams = new Map();

  apply(event) {
    REDUCERS.get(event.type)?.(this, event, event.payload);
  }

  /** @internal The team that an event is about. */
  team(event) {
    const channel = visibleChannel(event) ?? NO_CHANNEL;
    if (!this.teams.has(channel)) this.teams.set(channel, new Team());
    return this.teams.get(channel);
  }

  /** Return the teams as JSON, each with its nine seats. */
  report() {
    const named = [...this.teams].sort(([one], [other]) => (one < other ? -1 : 1));
    return named.map(([channel, { hatching, seats }]) => ({
      channel: channel || null,
      hatching,
      grid: Array.from({ length: SEATS }, (_, seat) => seats.get(seat) ?? null),
    }));
  }
}

function expectMembers(roster, event, { command: { kind, agents = [] } }) {
  if (!HATCHING_COMMANDS.has(kind)) return;
  const team = roster.team(event);
  Object.assign(team, { hatching: event.ts, turn: event.trace_id ?? null });
  for (const { name, seat, color, color_name } of agents) {
    const one = team.getOrAdd(seat, { name, state: "hatching", color, color_name });
    if (one.state === "sleeping") one.state = "hatching";
  }
}

/** A member that joins again keeps its birth; another member on the seat gets a new one. */
function joinTeam(roster, event, { face, created_at, ...looks }) {
  const { seats } = roster.team(event);
  const before = seats.get(looks.seat);
  const born = (before?.name === looks.name && before.born) || created_at || event.ts;
  seats.set(looks.seat, newMember({ ...looks, ...face, state: "alive", born, last_alive: event.ts }));
}

/** Set the state of the listed members. A listed member that is unknown is added, unless it has shut down. */
function updateTeam(roster, event, { agents }) {
  const team = roster.team(event);
  const last = new Map(agents.map((listed) => [listed.seat, listed]));
  const awake = new Map([...last].filter(([, listed]) => listed.status !== "shutdown"));
  for (const [seat, { name }] of awake) {
    const one = team.getOrAdd(seat, { name, state: "alive" });
    Object.assign(one, { state: "alive", born: one.born || event.ts, last_alive: event.ts });
  }
  team.sleepExcept(awake);
}

/** The next turn carries out a command that opened no turn of its own. */
function agentStart(roster, event) {
  const team = roster.teams.get(visibleChannel(event) ?? NO_CHANNEL);
  if (team?.hatching && team.turn === null) team.turn = event.trace_id ?? null;
}

/** The end of the turn of a summon or a wake ends the hatching. */
function agentEnd(roster, event, { stop_reason }) {
  const team = roster.teams.get(visibleChannel(event) ?? NO_CHANNEL);
  const over = !event.depth && stop_reason !== "handoff";
  if (over && team && team.turn !== null && team.turn === event.trace_id) team.endHatching();
}

const REDUCERS = new Map([
  ["ui.command", expectMembers],
  ["roster.join", joinTeam],
  ["roster.status", updateTeam],
  ["agent.start", agentStart],
  ["agent.end", agentEnd],
  ["process.end", ({ teams }) => teams.forEach((team) => team.sleepExcept())],
]);
