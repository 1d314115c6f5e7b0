// Create a JSON stream and append numbers to it: node write.mjs URL TOKEN COUNT. Each number is one request.
import { DurableStream, IdempotentProducer } from "@durable-streams/client";
import { BACKOFF, patientFetch } from "./backoff.mjs";

const [url, token, count] = process.argv.slice(2);
const handle = await DurableStream.create({
  url,
  headers: { Authorization: `Bearer ${token}` },
  contentType: "application/json",
  backoffOptions: BACKOFF,
});
const producer = new IdempotentProducer(handle, "numbers", {
  maxBatchBytes: 1,
  lingerMs: 0,
  maxInFlight: 4,
  fetch: patientFetch,
  onError: (error) => {
    console.error(error);
    process.exitCode = 1;
  },
});
for (let number = 0; number < Number(count); number += 1) {
  producer.append(JSON.stringify(number));
  if (number % 10 === 9) await producer.flush();
}
await producer.flush();
console.log("written");
