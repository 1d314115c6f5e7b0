/** Light, dark, or as the machine is. */

const THEMES = ["auto", "light", "dark"];
const KEY = "turnlog theme";

export const theme = () => {
  const kept = localStorage.getItem(KEY);
  return THEMES.includes(kept) ? kept : "auto";
};

export const showTheme = () => (document.documentElement.dataset.theme = theme());

export function nextTheme() {
  localStorage.setItem(KEY, THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
  showTheme();
}

showTheme();
