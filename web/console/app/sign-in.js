/**
 * `<tl-sign-in>`: the page without a cookie. The server exchanges a token for a cookie; the page does not store the
 * token.
 */

import { html, nothing } from "lit";

import { ConsoleElement } from "../ui/base-element.js";
import "./focus-recovery.js";

export class SignIn extends ConsoleElement {
  static properties = { problem: { state: true } };

  constructor() {
    super();
    this.problem = null;
  }

  async #submit(event) {
    event.preventDefault();
    const token = event.target.elements.token.value.trim();
    const headers = { "content-type": "application/json", authorization: `Bearer ${token}` };
    try {
      const response = await fetch("api/sign-in", { method: "POST", headers, body: "{}" });
      if (response.ok) this.dispatchEvent(new CustomEvent("signed-in"));
      else this.problem = "The server does not know this token.";
    } catch {
      this.problem = "The server does not answer.";
    }
  }

  render() {
    return html`<main class="sign-in"><h1>Turnlog</h1>
      <p>Open the link that the server printed when it started: it signs you in, once.
        Or use a token that it was started with (<code>--tokens</code>, <code>TURNLOG_TOKEN</code>).</p>
      <form @submit=${this.#submit}>
        <label>Token <input name="token" type="password" autocomplete="off" required></label>
        <button class="strong">Sign in</button>
      </form>
      ${this.problem ? html`<p class="problem" role="alert">${this.problem}</p>` : nothing}
    </main>`;
  }
}

customElements.define("tl-sign-in", SignIn);
