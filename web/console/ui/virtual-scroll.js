/**
 * The geometry of a virtual list: rows of one height in a box that scrolls. Pure.
 *
 * Browsers limit the height of an element. A list that is higher scrolls in a track of `MAX_HEIGHT_PX`, where a pixel
 * stands for more than one.
 */

const MAX_HEIGHT_PX = 8_000_000; // Firefox stops near 17.9 million, Chromium near 33.5
const OVERSCAN_ROWS = 5; // above and below the view: a small scroll needs no drawing

export class VirtualScroll {
  /** `view` is the height of the box. */
  constructor(count, rowHeight, view, limit = MAX_HEIGHT_PX) {
    Object.assign(this, { count, rowHeight, view });
    this.total = count * rowHeight;
    this.height = Math.min(this.total, limit);
  }

  /** Return the pixels of rows above the box for a scrollTop. */
  contentTop(scroll) {
    return this.height === this.total ? scroll : scroll * this.#stretch;
  }

  /** Return the scrollTop with so many pixels of rows above the box, or the nearest one. */
  scrollTopFor(top) {
    const near = Math.max(0, Math.min(top, this.total - this.view));
    return this.height === this.total ? near : near / this.#stretch;
  }

  get #stretch() {
    return (this.total - this.view) / (this.height - this.view);
  }

  /** Return the rows to draw, `[first, end)`, and the offset of the first in the track. */
  rowsAt(scroll) {
    const top = this.contentTop(scroll);
    const first = Math.max(0, Math.floor(top / this.rowHeight) - OVERSCAN_ROWS);
    const end = Math.min(this.count, Math.ceil((top + this.view) / this.rowHeight) + OVERSCAN_ROWS);
    return { first: Math.min(first, end), end, offset: scroll - (top - first * this.rowHeight) };
  }

  /** Whether a row is completely in the box. */
  shows(row, scroll) {
    const above = row * this.rowHeight - this.contentTop(scroll);
    return above >= 0 && above + this.rowHeight <= this.view;
  }

  /**
   * Return the scrollTop that shows a row: unchanged if it is in view, minimal if it is near, else with the row in the
   * middle.
   */
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
