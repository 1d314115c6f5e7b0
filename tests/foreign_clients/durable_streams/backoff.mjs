// How the clients try again while the server restarts.
import { setTimeout as sleep } from "node:timers/promises";

export const BACKOFF = { initialDelay: 20, maxDelay: 200, multiplier: 2, maxRetries: Number.POSITIVE_INFINITY };

/** `fetch` that repeats a request which got no response. The server knows what it has stored already. */
export async function patientFetch(...request) {
  for (;;) {
    try {
      return await fetch(...request);
    } catch {
      await sleep(BACKOFF.maxDelay);
    }
  }
}
