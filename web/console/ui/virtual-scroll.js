/**
 * Where the rows of a long list are: rows of one height in a box that scrolls.
 *
 * Pure. Browsers stop at some height of an element; a list that is higher is scrolled in a track of `LIMIT_PX`,
 * and every pixel there stands for more than one.
 */

const MAX_HEIGHT_PX = 8_000_000; // Firefox stops near 17.9 million, Chromium near 33.5
const OVERSCAN_ROWS = 5; // rows drawn above and below what is seen: a small scroll shows them before they are due

export class VirtualScroll {
  /** `view` is the height of the box. */
  constructor(count, rowHeight, view, limit = MAX_HEIGHT_PX) {
    Object.assign(this, { count, rowHeight, view });
    this.total = count * rowHeight;
    this.height = Math.min(this.total, limit);
  }

  /** How many pixels of rows are above the box if all could be scrolled, for a place of the scroll bar. */
  contentTop(scroll) {
    return this.height === this.total ? scroll : scroll * this.#stretch;
  }

  /** The place of the scroll bar at which so many pixels are above; as near as it gets. */
  scrollTopFor(top) {
    const near = Math.max(0, Math.min(top, this.total - this.view));
    return this.height === this.total ? near : near / this.#stretch;
  }

  get #stretch() {
    return (this.total - this.view) / (this.height - this.view);
  }

  /** The rows to draw at a place, `[first, end)`, and where in the track the first of them stands. */
  rowsAt(scroll) {
    const top = this.contentTop(scroll);
    const first = Math.max(0, Math.floor(top / this.rowHeight) - OVERSCAN_ROWS);
    const end = Math.min(this.count, Math.ceil((top + this.view) / this.rowHeight) + OVERSCAN_ROWS);
    return { first: Math.min(first, end), end, offset: scroll - (top - first * this.rowHeight) };
  }

  /** Whether a row is in the box, whole. */
  shows(row, scroll) {
    const above = row * this.rowHeight - this.contentTop(scroll);
    return above >= 0 && above + this.rowHeight <= this.view;
  }

  /** How far to scroll to have a row in the box: not if it is there, a bit if it is near, else to the middle. */
  reveal(row, scroll) {
    const top = this.contentTop(scroll);
    const above = row * this.rowHeight;
    const below = above + this.rowHeight - this.view;
    if (above >= top && below <= top) return scroll;
    const far = above < top - this.view || below > top + this.view;
    if (far) return this.scrollTopFor(above - (this.view - this.rowHeight) / 2);
    return this.scrollTopFor(above < top ? above : below);
  }
}
