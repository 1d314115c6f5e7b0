// Times of the log in the zone of the machine.

import assert from "node:assert/strict";
import { test } from "node:test";

import { formatClock, formatDateTime, formatShortTime, utcTooltip } from "../console/ui/time-format.js";

process.env.TZ = "America/Los_Angeles";
const TS = "2026-01-08T02:34:56.789Z"; // the evening before, there

test("clock: the time of day is that of the machine", () => assert.equal(formatClock(TS), "18:34:56.789"));

test("formatDateTime: the day is that of the machine too", () =>
  assert.equal(formatDateTime(TS), "2026-01-07 18:34:56"));

test("formatShortTime: a time of today has no day", () => {
  assert.equal(formatShortTime(TS, { now: new Date("2026-01-08T07:59:59Z") }), "18:34");
});

test("formatShortTime: a time of another day has its day", () => {
  assert.equal(formatShortTime(TS, { now: new Date("2026-01-08T08:00:00Z") }), "2026-01-07 18:34");
});

for (const [locale, today, otherDay] of [
  ["en-GB", "18:34", "7 Jan 2026, 18:34"],
  ["en-US", "6:34 PM", "Jan 7, 2026, 6:34 PM"],
  ["de-AT", "18:34", "07.01.2026, 18:34"],
]) {
  test(`formatShortTime: a locale chooses the form of the time and of the day: ${locale}`, () => {
    const form = (now) => formatShortTime(TS, { locale, now: new Date(now) }).replaceAll("\u202f", " ");
    assert.equal(form("2026-01-08T07:59:59Z"), today);
    assert.equal(form("2026-01-08T08:00:00Z"), otherDay);
    assert.equal(formatShortTime("soon", { locale }), "soon");
  });
}

test("utcTooltip: a tooltip has the time in UTC and the zone of what is shown", () => {
  assert.equal(utcTooltip(TS), "2026-01-08 02:34:56.789 UTC, shown in the time zone America/Los_Angeles");
});

test("what is no time stays as it is", () => {
  assert.deepEqual(
    [formatClock("soon"), formatDateTime("soon"), formatShortTime("soon"), utcTooltip("soon")],
    ["soon", "soon", "soon", ""],
  );
});
