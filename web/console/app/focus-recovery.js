/**
 * Keeps the keyboard focus when the focused element is removed or disabled: it moves to the nearest focusable element
 * around, else to the conversation, else to the title. Imported for its side effect by the chunks that remove
 * elements.
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
  requestAnimationFrame(() => recoverFocus(path)); // after the update that removed or disabled it
});
