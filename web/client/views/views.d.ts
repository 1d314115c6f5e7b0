import type { Envelope, ErrorInfo, Json, UiAction } from "../events.js";

export type Action = UiAction["action"];

/** Why an action is refused; `path` leads into the action, or is `view_id`. */
export interface Problem {
  kind: "conflict" | "invalid";
  message: string;
  path: Array<string | number>;
}

/** An open view. */
export interface OpenView {
  /** The id of the `assistant.view`: an action's `shown`. */
  readonly event_id: string;
  readonly channel: string | null;
  readonly view_id: string;
  readonly tree: Json;
  /** The surface of a view of A2UI; null for nodes. */
  readonly surface: Surface | null;
  /** By table: the ids of its rows. */
  readonly rows: ReadonlyMap<string, ReadonlySet<string>>;
  /** The ids of used forms and buttons, and of saved tables. */
  readonly used: ReadonlySet<string>;
}

/** The state of a surface of A2UI v0.9. `data` is undefined if its data model was removed. */
export interface Surface {
  readonly surfaceId: string;
  readonly creation: { readonly [key: string]: Json };
  readonly components: ReadonlyMap<string, { readonly [key: string]: Json }>;
  readonly data: Json | undefined;
}

/** Folds events to the open views of a session, the newest last. */
export declare class OpenViews {
  /** By `viewKey`. */
  readonly open: ReadonlyMap<string, OpenView>;
  apply(event: Envelope<string, any>): void;
  /** Apply an action in a channel. */
  applyAction(action: UiAction, channel?: string | null): void;
  /** Return the problems the server would find in an action; empty if it is valid. */
  validateAction(action: UiAction, channel?: string | null): Problem[];
}

/** The kind of a view that is a tree of nodes. */
export declare const NODES_KIND: string;

/** Return the key of a view in `OpenViews.open`. */
export declare function viewKey(channel: string | null | undefined, viewId: string): string;

/** Return the view of an action in a channel: several channels may show one `view_id`. */
export declare function findView<View extends Pick<OpenView, "event_id" | "channel" | "view_id">>(
  views: Iterable<View>,
  action: Pick<UiAction, "view_id" | "shown">,
  channel?: string | null,
): View | undefined;

/** Return the server's `fault` for problems, of which there is at least one. */
export declare function buildFault(problems: Problem[]): ErrorInfo;
