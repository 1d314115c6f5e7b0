/** The colour theme: light, dark, or the machine's own. Applied on import, before anything is drawn. */

import { browserStorage } from "./storage.js";

const THEMES = ["auto", "light", "dark"];
const KEY = "turnlog theme";

export const currentTheme = () => {
  const stored = browserStorage.read(KEY);
  return THEMES.includes(stored) ? stored : "auto";
};

const applyTheme = () => (document.documentElement.dataset.theme = currentTheme());

export function switchTheme() {
  browserStorage.write(KEY, THEMES[(THEMES.indexOf(currentTheme()) + 1) % THEMES.length]);
  applyTheme();
}

applyTheme();
