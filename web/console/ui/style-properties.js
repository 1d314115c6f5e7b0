/**
 * Sets styles in a template: `<div ${setStyles({ left: "10%" })}>`. The page's policy forbids style attributes, which
 * a template would write; this directive sets properties.
 */

import { noChange } from "lit";
import { Directive, directive } from "lit/directive.js";

export const setStyles = directive(
  class extends Directive {
    render() {
      return noChange;
    }

    update({ element }, [styles]) {
      for (const [name, value] of Object.entries(styles)) element.style.setProperty(name, value);
      return noChange;
    }
  },
);
