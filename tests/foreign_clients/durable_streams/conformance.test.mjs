// The conformance suite of Durable Streams against the server at CONFORMANCE_URL.
import { runConformanceTests } from "@durable-streams/server-conformance-tests";

runConformanceTests({
  baseUrl: process.env.CONFORMANCE_URL,
  longPollTimeoutMs: Number(process.env.LONG_POLL_MS),
});
