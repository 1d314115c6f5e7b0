/**
 * How long things of a session have taken until `now` (milliseconds since 1970), from the client's `Meters`: what is
 * open counts as far as it has come. Pure.
 */

const msSince = (ts, now) => Math.max(0, now - Date.parse(ts));

/** A turn or an agent; null if nothing of it has begun. */
export function meterElapsedMs({ duration_ms, running, began }, now) {
  return duration_ms ?? (running ? msSince(began, now) : null);
}

/** All turns, one after the other. */
export const turnsElapsedMs = ({ turns }, now) =>
  [...turns.values()].reduce((sum, turn) => sum + (meterElapsedMs(turn, now) ?? 0), 0);

/** All calls: how long tools ran, and how long people were waited for. */
export function callTimes({ session, openCalls }, now) {
  let { tool_ms, wait_ms } = session;
  for (const call of [...openCalls.values()].flatMap((calls) => [...calls.values()])) {
    const waited = call.waited_ms + (call.waits === null ? 0 : msSince(call.waits, now));
    wait_ms += waited;
    tool_ms += Math.max(0, msSince(call.since, now) - waited);
  }
  return { tool_ms, wait_ms };
}
