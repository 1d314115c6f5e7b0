/**
 * Focus is not lost: when what had it is taken away, or cannot be used any more, it goes to the nearest thing around
 * that takes it, else to the conversation, else to the top of the page. Who leaves something on purpose is let go.
 * Loaded with the parts in which that happens, and not before.
 */

const FOCUSABLE = "[tabindex]";

function recoverFocus(path) {
  const [left] = path;
  if (document.activeElement !== document.body || (left.isConnected && !left.matches(":disabled"))) return;
  const near = path.find((each) => each.isConnected && each.matches?.(FOCUSABLE) && each.getClientRects().length);
  (near ?? document.querySelector("[role=log]") ?? document.querySelector("h1 a"))?.focus({ preventScroll: true });
}

addEventListener("focusout", (event) => {
  if (event.relatedTarget || !document.hasFocus()) return;
  const path = event.composedPath();
  requestAnimationFrame(() => recoverFocus(path)); // by then it is known what has become of it
});
