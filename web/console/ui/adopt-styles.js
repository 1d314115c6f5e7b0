/** Put on a style: parts of the page that load late bring theirs along (`build.mjs`). */
export function adoptStyles(css) {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}
