// The console begins here.

import DOMPurify from "dompurify";
import { html, render } from "lit";
import { marked } from "marked";

import * as client from "../client/index.js";

globalThis.turnlog = { client, DOMPurify, marked };
render(html`<p>Turnlog</p>`, document.body);
