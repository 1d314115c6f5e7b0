/**
 * `<tl-view-table>`: a table of a view. Cells are edited, rows added and deleted on the page; Save sends all rows. A
 * long table draws its first rows, the others on demand, and saves all of them.
 */

import { html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";

import { ActionPart } from "./action-part.js";
import { cellKey, incompleteDate, tableErrors } from "./errors.js";
import { drawControl, drawNotes, hasIncompleteInput, requiredMark } from "./field.js";
import { TableEdits, buildSave, cellText, currentRows, firstText, pageSize } from "./table-edits.js";
import { displayText } from "./values.js";

export class ViewTable extends ActionPart {
  static properties = { count: { state: true } };
  #edits = new TableEdits();

  willUpdate() {
    if (this.hasUpdated) return;
    this.#edits = TableEdits.fromJson(this.draft.read());
    this.count = pageSize(this.node.columns);
  }

  onSubmitted() {
    this.#edits = new TableEdits();
  }

  get #rows() {
    const known = this.openView?.rows.get(this.node.id) ?? new Set((this.node.rows ?? []).map(({ row_id }) => row_id));
    return currentRows(this.node, known, this.lastAction, this.#edits);
  }

  #saveDraft() {
    this.draft.write(this.#edits);
  }

  #onType(key, name, text) {
    if (this.#edits.text(key, name) === undefined) this.requestUpdate(); // removes the error of the cell
    this.#edits.write(key, name, text);
    this.#saveDraft();
    this.clearError(cellKey(key, name));
  }

  async #add() {
    const key = this.#edits.add();
    this.#saveDraft();
    this.count = Math.max(this.count, this.#rows.length);
    this.requestUpdate();
    await this.updateComplete;
    this.#findRow(key)?.querySelector("input, select, textarea")?.focus();
  }

  async #remove(key, again) {
    this.#edits[again ? "restore" : "remove"](key);
    this.#saveDraft();
    this.onConfirm = null;
    this.requestUpdate();
    await this.updateComplete;
    (this.#findRow(key)?.querySelector("td.tools button") ?? this.querySelector(".add"))?.focus();
  }

  #findRow(key) {
    return [...this.querySelectorAll("tr[data-row]")].find(({ dataset }) => dataset.row === key);
  }

  #save(event) {
    event.preventDefault();
    const { action, keys } = buildSave(this.node, this.#rows, this.#edits);
    const half = this.#incompleteCells(keys);
    this.act(action, (problems) => this.#showErrors(problems, keys), half.length > 0 ? half : undefined);
  }

  /** Return the errors by cell, and draw all rows that have one. */
  #showErrors(problems, keys) {
    const places = tableErrors(problems, keys, this.texts);
    const last = this.#rows.findLastIndex(({ key }) => [...places.keys()].some((place) => place.startsWith(`${key} `)));
    this.count = Math.max(this.count, last + 1);
    return places;
  }

  #incompleteCells(keys) {
    const cells = [...this.querySelectorAll("td[data-name]")].filter((cell) => hasIncompleteInput(cell));
    return cells.map((cell) => {
      const { name } = cell.dataset;
      return incompleteDate(this.texts, name, "rows", keys.indexOf(cell.parentElement.dataset.row), name);
    });
  }

  render() {
    const { id, title, save = this.texts.save, can_add, error } = this.node;
    const rows = this.#rows;
    return html`<form class="table" novalidate autocomplete="off" data-table=${id}
      data-state=${this.isUsed ? "sent" : "open"} @submit=${(event) => this.#save(event)}>
      <fieldset ?disabled=${this.isUsed || this.isBusy}>
        ${title ? html`<legend>${title}</legend>` : nothing}
        <div class="wide"><table aria-label=${title ?? this.texts.table}>
          <thead><tr>${this.node.columns.map((column) => this.#drawHead(column))}${this.#drawToolsCell("th")}</tr></thead>
          <tbody>${repeat(
            rows.slice(0, this.count),
            ({ key }) => key,
            (row, at) => this.#drawRow(row, at),
          )}</tbody>
        </table></div>
        ${rows.length === 0 ? html`<p class="help">${this.texts.noRows}</p>` : nothing}
        ${this.#drawMore(rows.length)}
        ${this.renderError(this.lastAction ? null : error)}
        <div class="doing">
          ${can_add ? html`<button type="button" class="add" @click=${() => this.#add()}>${this.texts.addRow}</button>` : nothing}
          ${this.renderAction(html`<button class="strong">${save}</button>`, save)} ${this.renderStatus()}
        </div>
      </fieldset>
    </form>`;
  }

  #drawMore(length) {
    if (length <= this.count) return nothing;
    const more = () => (this.count += pageSize(this.node.columns));
    return html`<p class="help">${this.texts.rowsShown(this.count, length)}
      <button type="button" class="plain" @click=${more}>${this.texts.showMore}</button></p>`;
  }

  /** Draw a cell of the last column, if any row can be deleted; added rows can. */
  #drawToolsCell(kind, content = html`<span class="unseen">${this.texts.deleteRow}</span>`) {
    if (!this.node.can_delete && !this.node.can_add) return nothing;
    return kind === "th" ? html`<th scope="col">${content}</th>` : html`<td class="tools">${content}</td>`;
  }

  #drawHead(column) {
    const id = `${this.key}-${column.name}`;
    const { help, error: problem } = column;
    return html`<th scope="col">${column.label}${requiredMark(column)}${drawNotes(column, { id, help, problem, texts: this.texts })}</th>`;
  }

  #drawRow(row, at) {
    const gone = this.#edits.isRemoved(row.key);
    const problem = this.#problem(cellKey(row.key, ""), row.error);
    return html`<tr data-row=${row.key} class=${gone ? "gone" : ""}>
      ${this.node.columns.map((column) => this.#drawCell(row, at, column, gone))}
      ${this.#drawToolsCell("td", this.#drawTool(row, at, gone))}
    </tr>
    ${
      problem == null
        ? nothing
        : html`<tr class="row-wrong"><td colspan="99">
      <p class="wrong" role="alert" tabindex="-1">${this.texts.problem(problem)}</p></td></tr>`
    }`;
  }

  #drawTool(row, at, gone) {
    if (row.row_id !== null && !this.node.can_delete) return nothing;
    const words = gone ? this.texts.undoDelete : this.texts.deleteRow;
    return html`<button type="button" class="plain" aria-label=${this.texts.rowTool(words, at + 1)}
      @click=${() => this.#remove(row.key, gone)}>${words}</button>`;
  }

  #drawCell(row, at, column, gone) {
    const text = cellText(row, column, this.#edits);
    if (gone) return html`<td data-label=${column.label}><s>${displayText(column, text)}</s></td>`;
    const id = `${this.key}-${row.key}-${column.name}`;
    const touched = this.#edits.text(row.key, column.name) !== undefined;
    const problem = this.#problem(cellKey(row.key, column.name), touched ? null : row.errors.get(column.name));
    const about = [column.help && `${this.key}-${column.name}-help`, problem != null && `${id}-wrong`].filter(Boolean);
    return html`<td data-name=${column.name} data-label=${column.label}>
      ${drawControl(column, {
        id,
        text,
        first: firstText(row, column),
        name: this.texts.cell(column.label, at + 1),
        wrong: problem != null,
        about: about.join(" ") || nothing,
        tell: (said) => this.#onType(row.key, column.name, said),
        texts: this.texts,
      })}
      ${drawNotes(column, { id, problem, help: null, texts: this.texts })}
    </td>`;
  }

  #problem(place, error) {
    if (this.isUsed) return null;
    return this.problems ? this.problems.get(place) : error;
  }
}

customElements.define("tl-view-table", ViewTable);
