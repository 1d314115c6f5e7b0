import type { Json } from "../events.js";
import type { Surface } from "./views.js";

/** The kind of a view with messages of A2UI v0.9. */
export declare const A2UI_KIND: string;

/** Messages that do not fit the surface that is open. */
export declare class SurfaceError extends Error {}

/** Return the surface after the messages of an event, null if none is open then. Throws `SurfaceError`. */
export declare function applyMessages(
  surface: Surface | null,
  viewId: string,
  tree: { [key: string]: Json },
): Surface | null;

/** Return messages that build a surface in a reader that has none. */
export declare function snapshotMessages(surface: Surface): { [key: string]: Json }[];

/** Return the size of a JSON value, for the limits of surfaces. */
export declare function measure(value: Json): number;

/** Return the size of the components and the data of a surface. */
export declare function surfaceSize(surface: Surface): number;

/** Return the problems of an `a2ui.action`. */
export declare function checkA2uiAction(
  surface: Surface | null,
  action: { component_id: string; name: string; context: { [key: string]: Json }; data_model?: Json },
): { message: string; path: string[] }[];
