/** Light, dark, or as the machine is. */

import { browserStorage } from "./storage.js";

const THEMES = ["auto", "light", "dark"];
const KEY = "turnlog theme";

export const theme = () => {
  const kept = browserStorage.read(KEY);
  return THEMES.includes(kept) ? kept : "auto";
};

export const showTheme = () => (document.documentElement.dataset.theme = theme());

export function nextTheme() {
  browserStorage.write(KEY, THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
  showTheme();
}

showTheme();
