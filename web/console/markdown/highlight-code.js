/**
 * Colours code: replaces the text of a `<code>` by the same text in spans. A chunk of its own, loaded with the first
 * block of code in a known language. highlight.js calls an emitter for each token; this one builds elements, so no
 * markup is made of the code.
 */

import highlighter from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import csharp from "highlight.js/lib/languages/csharp";
import css from "highlight.js/lib/languages/css";
import dockerfile from "highlight.js/lib/languages/dockerfile";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import kotlin from "highlight.js/lib/languages/kotlin";
import php from "highlight.js/lib/languages/php";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import swift from "highlight.js/lib/languages/swift";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import "./highlight-code.css";

const LANGUAGES = {
  bash,
  c,
  cpp,
  csharp,
  css,
  dockerfile,
  go,
  ini,
  java,
  javascript,
  json,
  kotlin,
  php,
  python,
  ruby,
  rust,
  sql,
  swift,
  typescript,
  xml,
  yaml,
};

/** By the first word of highlight.js' scopes: the class of the span. Other scopes have the colour of the text. */
const CLASSES = new Map([
  ["attr", "code-name"],
  ["attribute", "code-name"],
  ["built_in", "code-type"],
  ["class", "code-type"],
  ["comment", "code-comment"],
  ["doctag", "code-comment"],
  ["keyword", "code-keyword"],
  ["literal", "code-value"],
  ["meta", "code-comment"],
  ["name", "code-keyword"],
  ["number", "code-value"],
  ["property", "code-name"],
  ["quote", "code-comment"],
  ["regexp", "code-string"],
  ["selector-tag", "code-keyword"],
  ["string", "code-string"],
  ["symbol", "code-value"],
  ["tag", "code-keyword"],
  ["title", "code-name"],
  ["type", "code-type"],
]);

/** Builds the elements of highlighted code. The methods are those that highlight.js calls. */
class ElementEmitter {
  root = document.createDocumentFragment();
  #open = [this.root];

  addText(text) {
    if (text !== "") this.#open.at(-1).append(text);
  }

  openNode(scope) {
    const element = document.createElement("span");
    element.className = CLASSES.get(scope.split(".")[0]) ?? "";
    this.#open.at(-1).append(element);
    this.#open.push(element);
  }

  closeNode() {
    this.#open.pop();
  }

  startScope(scope) {
    this.openNode(scope);
  }

  endScope() {
    this.closeNode();
  }

  __addSublanguage(emitter) {
    this.#open.at(-1).append(emitter.root);
  }

  finalize() {}

  toHTML() {
    return "";
  }
}

for (const [name, language] of Object.entries(LANGUAGES)) highlighter.registerLanguage(name, language);
highlighter.configure({ __emitter: ElementEmitter });

/** Colour the code of an element; a language that is not known changes nothing. */
export function highlightCode(element, language) {
  if (!highlighter.getLanguage(language)) return;
  const text = element.textContent;
  const { _emitter: emitter } = highlighter.highlight(text, { language, ignoreIllegals: true });
  if (emitter.root.textContent === text) element.replaceChildren(emitter.root); // else it would show other code
}
