/** Random ids of 128 bits. `crypto.randomUUID` is missing in a page over plain HTTP from another machine. */
export const newId = (): string => crypto.getRandomValues(new Uint32Array(4)).join("-");
