/**
 * Folds events to teams on a 3 x 3 grid: members hatching, alive or asleep (docs/protocol.md, section 9.7). Same as
 * `turnlog.team.roster`.
 *
 * A member is identified by its seat, 0 to 8; names are not unique. A summon expects members, a wake names seats. Both
 * end with a status, the end of their turn or the end of a process; a member that never joined is removed then. Each
 * channel has its own team.
 */

import type { Payloads, WakeAgent } from "../events.js";
import { type AnyEvent, visibleChannel } from "../folds/event-text.js";

/** A member of a team; `born` is the time of its first join. */
export interface TeamMember {
  name: string;
  seat: number;
  state: "hatching" | "alive" | "sleeping";
  color: string;
  color_name: string;
  gender: "man" | "woman";
  eyes: string;
  mouth: string;
  soul: string;
  born: string | null;
  last_alive: string | null;
}

/** A team on its nine seats; `hatching` is the time of the command that expects members. */
export interface Team {
  channel: string | null;
  hatching: string | null;
  grid: Array<TeamMember | null>;
}

const SEATS = 9;
const NO_CHANNEL = ""; // the team of events without a channel
const DEFAULT_LOOKS: Pick<TeamMember, "color" | "color_name" | "gender" | "eyes" | "mouth" | "soul"> = {
  color: "",
  color_name: "",
  gender: "man",
  eyes: "default",
  mouth: "default",
  soul: "",
};
const HATCHING_COMMANDS = new Set(["summon", "wake"]);

type KnownFields = Partial<TeamMember> & Pick<TeamMember, "name" | "seat" | "state">;

const newMember = (known: KnownFields): TeamMember => ({ ...DEFAULT_LOOKS, born: null, last_alive: null, ...known });

/** The members of one channel by seat; `turn` carries out the command that expects members. */
class ChannelTeam {
  seats = new Map<number, TeamMember>();
  hatching: string | null = null;
  turn: string | null = null;

  /** Return the member on a seat; add one if it is free. */
  getOrAdd(number: number, known: Omit<KnownFields, "seat">): TeamMember {
    const member = this.seats.get(number) ?? newMember({ seat: number, ...known });
    this.seats.set(number, member);
    return member;
  }

  /** End the hatching: members that never joined are removed, the others sleep. */
  endHatching(): void {
    this.hatching = this.turn = null;
    for (const [seat, one] of this.seats) {
      if (one.born === null) this.seats.delete(seat);
      else if (one.state === "hatching") one.state = "sleeping";
    }
  }

  /** End the hatching, and put all members to sleep except those on the seats of `awake`. */
  sleepExcept(awake: ReadonlyMap<number, unknown> = new Map()): void {
    this.endHatching();
    for (const [seat, one] of this.seats) if (!awake.has(seat)) one.state = "sleeping";
  }
}

/** Folds events to the team of each channel. */
export class Roster {
  /** @internal */ teams: Map<string, ChannelTeam> = new Map();

  apply(event: AnyEvent): void {
    REDUCERS.get(event.type)?.(this, event, event.payload);
  }

  /** @internal The team that an event is about. */
  team(event: AnyEvent): ChannelTeam {
    const channel = visibleChannel(event) ?? NO_CHANNEL;
    const team = this.teams.get(channel) ?? new ChannelTeam();
    this.teams.set(channel, team);
    return team;
  }

  /** Return the teams as JSON, each with its nine seats. */
  report(): Team[] {
    const named = [...this.teams].sort(([one], [other]) => (one < other ? -1 : 1));
    return named.map(([channel, { hatching, seats }]) => ({
      channel: channel || null,
      hatching,
      grid: Array.from({ length: SEATS }, (_, seat) => seats.get(seat) ?? null),
    }));
  }
}

type Reducer<Payload> = (roster: Roster, event: AnyEvent, payload: Payload) => void;

const expectMembers: Reducer<Payloads["ui.command"]> = (roster, event, { command }) => {
  if (!HATCHING_COMMANDS.has(command.kind)) return;
  const agents: WakeAgent[] = command.kind === "wake" ? command.agents : [];
  const team = roster.team(event);
  Object.assign(team, { hatching: event.ts, turn: event.trace_id ?? null });
  for (const { name, seat, color, color_name } of agents) {
    const one = team.getOrAdd(seat, { name, state: "hatching", color, color_name });
    if (one.state === "sleeping") one.state = "hatching";
  }
};

/** A member that joins again keeps its birth; another member on the seat gets a new one. */
const joinTeam: Reducer<Payloads["roster.join"]> = (roster, event, { face, created_at, ...looks }) => {
  const { seats } = roster.team(event);
  const before = seats.get(looks.seat);
  const born = (before?.name === looks.name && before.born) || created_at || event.ts;
  seats.set(looks.seat, newMember({ ...looks, ...face, state: "alive", born, last_alive: event.ts }));
};

/** Set the state of the listed members. A listed member that is unknown is added, unless it has shut down. */
const updateTeam: Reducer<Payloads["roster.status"]> = (roster, event, { agents }) => {
  const team = roster.team(event);
  const last = new Map(agents.map((listed) => [listed.seat, listed]));
  const awake = new Map([...last].filter(([, listed]) => listed.status !== "shutdown"));
  for (const [seat, { name }] of awake) {
    const one = team.getOrAdd(seat, { name, state: "alive" });
    Object.assign(one, { state: "alive", born: one.born || event.ts, last_alive: event.ts });
  }
  team.sleepExcept(awake);
};

/** The next turn carries out a command that opened no turn of its own. */
const agentStart: Reducer<unknown> = (roster, event) => {
  const team = roster.teams.get(visibleChannel(event) ?? NO_CHANNEL);
  if (team?.hatching && team.turn === null) team.turn = event.trace_id ?? null;
};

/** The end of the turn of a summon or a wake ends the hatching. */
const agentEnd: Reducer<Payloads["agent.end"]> = (roster, event, { stop_reason }) => {
  const team = roster.teams.get(visibleChannel(event) ?? NO_CHANNEL);
  const over = !event.depth && stop_reason !== "handoff";
  if (over && team && team.turn !== null && team.turn === event.trace_id) team.endHatching();
};

const REDUCERS = new Map<string, Reducer<any>>([
  ["ui.command", expectMembers],
  ["roster.join", joinTeam],
  ["roster.status", updateTeam],
  ["agent.start", agentStart],
  ["agent.end", agentEnd],
  ["process.end", ({ teams }) => teams.forEach((team) => team.sleepExcept())],
]);
