/**
 * Elapsed times until `now` (milliseconds since 1970), from the client's `Meters`, including what is still open. Pure.
 */

const msSince = (ts, now) => Math.max(0, now - Date.parse(ts));

/** Return the time of a turn or an agent so far; null if it has not started. */
export function meterElapsedMs({ duration_ms, running, began }, now) {
  return duration_ms ?? (running ? msSince(began, now) : null);
}

/** Return the sum over all turns. */
export const turnsElapsedMs = ({ turns }, now) =>
  [...turns.values()].reduce((sum, turn) => sum + (meterElapsedMs(turn, now) ?? 0), 0);

/** Return the time of all calls so far, without and with waiting for people. */
export function callTimes({ session, openCalls }, now) {
  let { tool_ms, wait_ms } = session;
  for (const call of [...openCalls.values()].flatMap((calls) => [...calls.values()])) {
    const waited = call.waited_ms + (call.waits === null ? 0 : msSince(call.waits, now));
    wait_ms += waited;
    tool_ms += Math.max(0, msSince(call.since, now) - waited);
  }
  return { tool_ms, wait_ms };
}
