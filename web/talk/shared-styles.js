/**
 * The stylesheets of all modules of the bundle, for every shadow root. The build turns a CSS import into a call of
 * `adoptStyles` (`bundle.mjs`). A module that is loaded later brings its styles to the roots that are open.
 */

const sheets = [];
const roots = new Set();

/** Add a stylesheet to all roots. */
export function adoptStyles(css) {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  sheets.push(sheet);
  for (const root of roots) root.adoptedStyleSheets = [...sheets];
}

/** Keep the stylesheets of a root complete; return a function that ends it. */
export function shareStyles(root) {
  roots.add(root);
  root.adoptedStyleSheets = [...sheets];
  return () => roots.delete(root);
}
