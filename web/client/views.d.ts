import type { Envelope, Fault, Json, UiAction } from "./events.js";

export type Action = UiAction["action"];

/** Why an action is not taken; `path` leads to the place in the action, or to `view_id`. */
export interface Problem {
  kind: "conflict" | "invalid";
  message: string;
  path: Array<string | number>;
}

/** A view that is open. */
export interface Shown {
  /** The id of the `assistant.view`: an action's `shown`. */
  readonly event_id: string;
  readonly channel: string | null;
  readonly tree: Json;
  /** By table: the rows it has now. */
  readonly rows: ReadonlyMap<string, ReadonlySet<string>>;
  /** The forms and buttons that were used up, and the tables whose new rows were saved. */
  readonly used: ReadonlySet<string>;
}

/** The views of a session that are open, the one shown last at the end. */
export declare class Views {
  readonly open: ReadonlyMap<string, Shown>;
  apply(event: Envelope<string, any>): void;
  /** An action has been taken. */
  take(action: UiAction): void;
  /** What the server would say to an action; nothing if it may be taken. */
  check(action: UiAction): Problem[];
}

/** Problems (at least one) as the server's `fault` says them. */
export declare function faultOf(problems: Problem[]): Fault;
