import type { Envelope, Fault, Json, UiAction } from "../events.js";

export type Action = UiAction["action"];

/** Why an action is not taken; `path` leads to the place in the action, or to `view_id`. */
export interface Problem {
  kind: "conflict" | "invalid";
  message: string;
  path: Array<string | number>;
}

/** A view that is open. */
export interface OpenView {
  /** The id of the `assistant.view`: an action's `shown`. */
  readonly event_id: string;
  readonly channel: string | null;
  readonly view_id: string;
  readonly tree: Json;
  /** By table: the rows it has now. */
  readonly rows: ReadonlyMap<string, ReadonlySet<string>>;
  /** The forms and buttons that were used up, and the tables that were saved. */
  readonly used: ReadonlySet<string>;
}

/** The views of a session that are open, the one shown last at the end. */
export declare class OpenViews {
  /** By channel and view id: the keys of `viewKey`. */
  readonly open: ReadonlyMap<string, OpenView>;
  apply(event: Envelope<string, any>): void;
  /** An action in a channel has been taken. */
  applyAction(action: UiAction, channel?: string | null): void;
  /** What the server would say to an action of a person in a channel; nothing if it may be taken. */
  validateAction(action: UiAction, channel?: string | null): Problem[];
}

/** The key of a view in `Views.open`. */
export declare function viewKey(channel: string | null | undefined, viewId: string): string;

/** The view that an action in a channel is for: several channels may show one `view_id`. */
export declare function findView<View extends Pick<OpenView, "event_id" | "channel" | "view_id">>(
  views: Iterable<View>,
  action: Pick<UiAction, "view_id" | "shown">,
  channel?: string | null,
): View | undefined;

/** Problems (at least one) as the server's `fault` says them. */
export declare function buildFault(problems: Problem[]): Fault;
