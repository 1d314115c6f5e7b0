import type { Json } from "../events.js";

/** Why a field of a view does not take a value: a sentence without its subject, or null. */
export declare function validateField(field: { [key: string]: Json }, value: Json): string | null;
