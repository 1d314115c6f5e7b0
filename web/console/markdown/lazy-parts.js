/**
 * Colours code and draws formulas in a text that is complete. What does it is loaded when a text needs it; until then,
 * and if it cannot be loaded, the text shows as it is.
 */

import { parseFormula } from "./formulas.js";

// highlight.js takes more than linear time for some texts, such as a long run of brackets: this many characters take it
// half a second at most, where 50,000 could take minutes
const MAX_CODE_CHARS = 8000;
const MAX_FORMULAS = 500; // of one block
const MAX_DRAW_MS = 10; // of formulas, until the page may react

/** The languages of `highlight-code.js` and their other names: for any other one nothing is loaded. */
const LANGUAGES = new Set(
  (
    "bash c c++ cc cpp cs csharp css docker dockerfile go golang h hpp html ini java javascript js json jsonc jsx kotlin " +
    "kt php py python rb rs ruby rust sh shell sql svg swift toml ts tsx typescript xhtml xml yaml yml zsh"
  ).split(" "),
);
const OTHER_NAMES = new Map([["shell", "bash"]]);

const languageOf = (figure) => (figure.querySelector("figcaption")?.firstChild?.data ?? "").toLowerCase();

/** Return the code elements of a block with their languages. */
function findCode(block) {
  const found = [...block.querySelectorAll("figure")].map((figure) => ({
    element: figure.querySelector("code"),
    language: languageOf(figure),
  }));
  return found.filter(
    ({ element, language }) => LANGUAGES.has(language) && (element?.textContent.length ?? Infinity) <= MAX_CODE_CHARS,
  );
}

/** Return the formulas of a block with their elements. */
function findFormulas(block) {
  const found = [...block.querySelectorAll("var")].slice(0, MAX_FORMULAS);
  return found.flatMap((element) => {
    const formula = parseFormula(element.textContent);
    return formula ? [{ element, formula }] : [];
  });
}

/** Whether a block has code or formulas that `drawLazyParts` changes. */
export const hasLazyParts = (block) => findCode(block).length > 0 || findFormulas(block).length > 0;

/** Let the page react before the next element is drawn. */
const nextTask = () => new Promise((resolve) => setTimeout(resolve));

/** Draw the code and the formulas of a block, one after the other. */
export async function drawLazyParts(block) {
  const [code, formulas] = [findCode(block), findFormulas(block)];
  const failed = () => null; // the page is offline, or the server has a newer console
  if (code.length > 0) {
    const module = await import("./highlight-code.js").catch(failed);
    for (const { element, language } of code) {
      if (element.isConnected) module?.highlightCode(element, OTHER_NAMES.get(language) ?? language);
      await nextTask();
    }
  }
  if (formulas.length > 0) {
    const module = await import("./draw-formula.js").catch(failed);
    let startMs = performance.now();
    for (const { element, formula } of formulas) {
      if (element.isConnected) module?.drawFormula(element, formula);
      if (performance.now() - startMs < MAX_DRAW_MS) continue;
      await nextTask();
      startMs = performance.now();
    }
    // what scrolls must be reached by keys; a formula of its own may scroll when the window gets narrower
    if (block.scrollWidth > block.clientWidth || block.querySelector(".formula.display")) block.tabIndex = 0;
  }
}
