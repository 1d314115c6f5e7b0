/**
 * Where a person is in the console, as the address says it: `?session=&panel=&seq=`. A reload, a bookmark and the
 * back button lead to the same place.
 */

const NAMES = ["app", "session", "panel", "seq"];

export function currentRoute(search = location.search) {
  const parameters = new URLSearchParams(search);
  const place = Object.fromEntries(NAMES.map((name) => [name, parameters.get(name)]));
  return { ...place, seq: /^\d{1,15}$/.test(place.seq ?? "") ? Number(place.seq) : null };
}

export function addressOf(place) {
  const parameters = new URLSearchParams();
  for (const name of NAMES) if (place[name] != null) parameters.set(name, place[name]);
  return `?${parameters}`;
}

/** Go somewhere; `replace` leaves no step to go back to. */
export function go(place, { replace = false } = {}) {
  const address = addressOf(place);
  if (address === (location.search || "?")) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  dispatchEvent(new PopStateEvent("popstate"));
}

/** Handle plain clicks on a link. The browser handles a click with a modifier key: it opens a tab or a window. */
export const onPlainClick = (handle) => (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  handle();
};

/** Show an event in the panel of events. */
export function goToEvent(seq) {
  go({ ...currentRoute(), panel: "events", seq });
  dispatchEvent(new CustomEvent("show-event", { detail: seq }));
}
