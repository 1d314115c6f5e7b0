/** 128 random bits. `crypto.randomUUID` is missing in a page that came over plain HTTP from another machine. */
export const newId = () => crypto.getRandomValues(new Uint32Array(4)).join("-");
