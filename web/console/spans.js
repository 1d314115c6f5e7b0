/** What took time in a session, for the waterfall: agents, completions, calls. A fold over durable events. */

export class Spans {
  spans = [];

  apply() {}
}
