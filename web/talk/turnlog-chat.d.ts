/** `<turnlog-chat>`: a conversation of Turnlog for its participants. Importing the module defines the element. */

export declare class TurnlogChat extends HTMLElement {
  /** The session to show. */
  session: string | null;
  /** The root address of the server; by default the directory of the page. */
  server: string;
  /** A token of the member, or a function that returns a fresh one. Without it the cookie of the server counts. */
  token: string | (() => string | Promise<string>) | null;
  /** "light" or "dark"; null is what the person prefers. */
  theme: "light" | "dark" | null;
  /** The level of the title's heading: 1 or 2. */
  headingLevel: number;
}

declare global {
  interface HTMLElementTagNameMap {
    "turnlog-chat": TurnlogChat;
  }

  interface HTMLElementEventMap {
    /** The title of the session, when it is known and when it changes. */
    "turnlog-title": CustomEvent<string | null>;
  }
}
