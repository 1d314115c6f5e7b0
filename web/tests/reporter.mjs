// The reporter of `npm test`: every test that failed, with its error, and one line of counts at the end.

import { inspect } from "node:util";

export default async function* report(source) {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for await (const { type, data } of source) {
    if (type === "test:stderr" || type === "test:stdout") yield data.message;
    if (type !== "test:pass" && type !== "test:fail") continue;
    counts[outcomeOf(type, data)] += 1;
    if (type === "test:fail") yield failure(data);
  }
  yield `web: ${counts.passed} tests passed, ${counts.failed} failed, ${counts.skipped} skipped\n`;
}

function outcomeOf(type, { skip, todo }) {
  if (skip !== undefined || todo !== undefined) return "skipped";
  return type === "test:pass" ? "passed" : "failed";
}

function failure({ file, line, name, details: { error } }) {
  return `\nFAILED ${name}\n  ${file}:${line}\n${inspect(error.cause ?? error)}\n\n`;
}
