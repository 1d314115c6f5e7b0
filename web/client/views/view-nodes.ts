// The nodes of a view of the kind a2ui.v1: generated from `turnlog schema` by generate.mjs; do not edit.

import type { Json } from "../events.js";

/** The tree of a view. */
export type ViewNode =
  | ScreenNode
  | SectionNode
  | TextNode
  | FormNode
  | TableEditorNode
  | ButtonNode;

/** A field of a form, or a column of a table. */
export type ViewField =
  | TextField
  | NumberField
  | DatetimeField
  | SelectField;

/** The root of a view with several nodes. */
export interface ScreenNode {
  type: "screen";
  children: Array<SectionNode | TextNode | FormNode | TableEditorNode | ButtonNode>;
  title?: string;
}

/** Nodes that belong together. */
export interface SectionNode {
  type: "section";
  children: Array<SectionNode | TextNode | FormNode | TableEditorNode | ButtonNode>;
  title?: string;
}

/** A plain text without markup. */
export interface TextNode {
  type: "text";
  text: string;
  style?: "body" | "caption" | "heading" | "subheading";
}

/** Fields that are submitted together: once, or several times if `repeat` is set. */
export interface FormNode {
  type: "form";
  id: string;
  fields: Array<TextField | NumberField | DatetimeField | SelectField>;
  title?: string;
  submit?: string;
  confirm?: string;
  repeat?: boolean;
  error?: string;
}

/** A text of at most `max_length` characters (code points). */
export interface TextField {
  type: "field.text";
  name: string;
  label: string;
  required?: boolean;
  help?: string;
  error?: string;
  value?: string;
  max_length?: number;
  multiline?: boolean;
  placeholder?: string;
}

/** A number from `min` to `max`, or greater than `above`; `step` counts from `min`, or else from 0. */
export interface NumberField {
  type: "field.number";
  name: string;
  label: string;
  required?: boolean;
  help?: string;
  error?: string;
  value?: number | number;
  min?: number | number;
  max?: number | number;
  above?: number | number;
  step?: number | number;
}

/** A day, or a time with or without its offset. `min` and `max` are days in the same notation. */
export interface DatetimeField {
  type: "field.datetime";
  name: string;
  label: string;
  required?: boolean;
  help?: string;
  error?: string;
  value?: string;
  picks?: "date" | "datetime";
  min?: string;
  max?: string;
}

/** One of some options. */
export interface SelectField {
  type: "field.select";
  name: string;
  label: string;
  required?: boolean;
  help?: string;
  error?: string;
  options: FieldOption[];
  value?: string;
}

/** A choice. Without a label its value is shown. */
export interface FieldOption {
  value: string;
  label?: string;
}

/** A table that is edited and saved as a whole. A column is a field; its `value` is the default. */
export interface TableEditorNode {
  type: "table_editor";
  id: string;
  columns: Array<TextField | NumberField | DatetimeField | SelectField>;
  rows?: TableRow[];
  title?: string;
  can_add?: boolean;
  can_delete?: boolean;
  save?: string;
  confirm?: string;
  error?: string;
}

/** A row of a table: values and error texts by column. */
export interface TableRow {
  row_id: string;
  values: { [key: string]: string | number | number | null };
  errors?: { [key: string]: string };
  error?: string;
}

/** A button, for one click or for several if `repeat` is set. `confirm` is asked before the click. `emits` are events of the application. The server appends them with the click, from the member who clicked, and refuses the click if the member's page may not post them. */
export interface ButtonNode {
  type: "button";
  id: string;
  label: string;
  style?: "danger" | "primary" | "secondary";
  confirm?: string;
  repeat?: boolean;
  emits?: ButtonEvent[];
}

/** An event of the application that a click emits: its bare name and its fields. */
export interface ButtonEvent {
  type: string;
  data?: { [key: string]: Json };
}
