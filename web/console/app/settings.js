/** What a person has set in this tab, for as long as it is open: choices and filters, never what the log says. */

import { tabStorage } from "./storage.js";

const PREFIX = "turnlog ";

export const remembered = (name, fallback) => tabStorage.read(PREFIX + name) ?? fallback;

export const remember = (name, value) => tabStorage.write(PREFIX + name, value);
