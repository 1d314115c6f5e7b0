/** Writes to the clipboard. A page over plain HTTP from another machine has none. */

export const hasClipboard = () => navigator.clipboard !== undefined;

/** Copy a text; return true. Throws where the browser refuses. */
export async function copyText(text) {
  await navigator.clipboard.writeText(text);
  return true;
}
