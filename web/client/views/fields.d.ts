import type { Json } from "../events.js";

/** Return why a value is not valid, as a sentence without its subject, or null. */
export declare function validateField(field: { [key: string]: Json }, value: Json): string | null;
