/** Adopts a stylesheet at run time. The build turns every CSS import of a script into a call of this (`build.mjs`). */

export function adoptStyles(css) {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}
