/**
 * The router: the page's URL `?app=&session=&panel=&seq=` is the route. A reload, a bookmark and the back button open
 * the same session, panel and event. Every navigation dispatches `popstate` on the window.
 */

import { html } from "lit";

const PARAMETERS = ["app", "session", "panel", "seq"];

/** Return the route of a URL's query; `seq` is a number, and a parameter that is missing is null. */
export function currentRoute(search = location.search) {
  const parameters = new URLSearchParams(search);
  const route = Object.fromEntries(PARAMETERS.map((name) => [name, parameters.get(name)]));
  return { ...route, seq: /^\d{1,15}$/.test(route.seq ?? "") ? Number(route.seq) : null };
}

function routeUrl(route) {
  const parameters = new URLSearchParams();
  for (const name of PARAMETERS) if (route[name] != null) parameters.set(name, route[name]);
  return `?${parameters}`;
}

/** Open a route. With `replace` the back button skips the current one. */
export function navigate(route, { replace = false } = {}) {
  const url = routeUrl(route);
  if (url === (location.search || "?")) return;
  history[replace ? "replaceState" : "pushState"](null, "", url);
  dispatchEvent(new PopStateEvent("popstate"));
}

/** Handle plain clicks on a link. The browser handles a click with a modifier key: it opens a tab or a window. */
export const onPlainClick = (handle) => (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  handle();
};

/** Open an event in the events panel. */
export function showEvent(seq) {
  navigate({ ...currentRoute(), panel: "events", seq });
  dispatchEvent(new CustomEvent("show-event", { detail: seq }));
}

/** Draw a link to an event. */
export function eventLink(seq, text) {
  const open = onPlainClick(() => showEvent(seq));
  return html`<a href=${routeUrl({ ...currentRoute(), panel: "events", seq })} data-seq=${seq} @click=${open}>${text}</a>`;
}
