/**
 * A list of blocks. A copy shares all blocks until one of its items is set, so that a change of a long list costs
 * no more than a change of a short one.
 *
 * Reading is as with an array. Only the code that has made a copy may change it, and only before others get it.
 */

const BLOCK_BITS = 5;
const BLOCK_LENGTH = 1 << BLOCK_BITS;
const BLOCK_MASK = BLOCK_LENGTH - 1;

export class SharedList {
  #blocks = []; // {owner, items}: all but the last one have BLOCK_LENGTH items
  #owner = {}; // an object for each list: the blocks that have it are not shared
  length = 0;

  copy() {
    const copy = new SharedList();
    copy.#blocks = this.#blocks.slice();
    copy.length = this.length;
    return copy;
  }

  /** Return an item; a negative index counts from the end. */
  at(index) {
    const at = index < 0 ? this.length + index : index;
    return this.#blocks[at >> BLOCK_BITS]?.items[at & BLOCK_MASK];
  }

  /** Return the items from an index on as an array. */
  slice(start = 0) {
    const items = [];
    for (let at = start; at < this.length; at += 1) items.push(this.at(at));
    return items;
  }

  [Symbol.iterator]() {
    return this.slice()[Symbol.iterator]();
  }

  map(convert) {
    return this.slice().map(convert);
  }

  findIndex(matches) {
    for (let at = 0; at < this.length; at += 1) if (matches(this.at(at))) return at;
    return -1;
  }

  findLast(matches) {
    for (let at = this.length - 1; at >= 0; at -= 1) if (matches(this.at(at))) return this.at(at);
    return undefined;
  }

  some(matches) {
    return this.findIndex(matches) >= 0;
  }

  /** Replace an item. */
  set(at, item) {
    this.#ownBlock(at >> BLOCK_BITS)[at & BLOCK_MASK] = item;
  }

  push(item) {
    const at = this.length;
    if ((at & BLOCK_MASK) === 0) this.#blocks.push({ owner: this.#owner, items: [item] });
    else this.#ownBlock(at >> BLOCK_BITS).push(item);
    this.length = at + 1;
  }

  /** Remove all items behind the first ones. */
  truncate(length) {
    if (length === this.length) return;
    this.#blocks.length = Math.ceil(length / BLOCK_LENGTH);
    if ((length & BLOCK_MASK) !== 0) this.#ownBlock(length >> BLOCK_BITS).length = length & BLOCK_MASK;
    this.length = length;
  }

  #ownBlock(index) {
    const block = this.#blocks[index];
    if (block.owner === this.#owner) return block.items;
    const items = block.items.slice();
    this.#blocks[index] = { owner: this.#owner, items };
    return items;
  }
}
