/** The folds of a team: its roster on nine seats, and the documents of document 004. */

export * from "./documents.js";
export * from "./roster.js";
