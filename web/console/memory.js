/** What a person has set in this tab, for as long as it is open: choices and filters, never what the log says. */

const PREFIX = "turnlog ";

export const remembered = (name, fallback) => sessionStorage.getItem(PREFIX + name) ?? fallback;

export const remember = (name, value) => sessionStorage.setItem(PREFIX + name, value);
