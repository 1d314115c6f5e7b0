/**
 * A decoder for Server-Sent Events: bytes in any pieces in, messages out.
 *
 * It follows the EventSource chapter of the HTML standard and equals `turnlog.wire.sse.Decoder`. A line ends with CR,
 * LF or CRLF and nothing else. Bad UTF-8 is replaced, unknown fields are ignored. A line, with the data lines before
 * it, may have `limitBytes`; more throws `BadInput`, after `feed` has returned the messages before it. The messages do
 * not depend on how the stream is cut into pieces.
 */

export const MAX_MESSAGE_BYTES = 16 * 1024 * 1024; // 1 MiB of input is at worst 6 MiB escaped, 5 MB of image 7 MB

const CR = 13;
const LF = 10;
const RETRY_PATTERN = /^[0-9]{1,15}$/; // 30,000 years; a number holds no more exactly
const UTF8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** The input breaks a limit. */
export class BadInput extends Error {
  override name = "BadInput";
}

/** One message. `id` is the last id of the stream, `retryMs` only of this message. */
export interface SseMessage {
  data: string;
  event: string;
  id: string;
  retryMs: number | null;
}

/** A piece of a line; all but the last of a chunk end their line. */
interface LinePiece {
  bytes: Uint8Array;
  ended: boolean;
}

type FieldReader = (self: Decoder, value: string, valueBytes: number) => void;

/**
 * Reads a stream fed in any pieces.
 *
 * `lastId` is the id to reconnect with: it moves when a message is complete, with data or without. `retryMs` is
 * the last waiting time the server asked for.
 */
export class Decoder {
  lastId = "";
  retryMs: number | null = null;
  readonly limitBytes: number;
  #overflowed = false;
  #first = true;
  #afterCr = false;
  #line: Uint8Array[] = []; // pieces of the incomplete line
  #lineBytes = 0;
  #data: string[] = []; // the data lines of the message so far
  #dataBytes = 0;
  #event = "";
  #id = "";
  #retryMs: number | null = null;

  constructor(limitBytes = MAX_MESSAGE_BYTES) {
    this.limitBytes = limitBytes;
  }

  #reset(): void {
    this.#first = true;
    this.#afterCr = false;
    this.#line = [];
    this.#lineBytes = 0;
    this.#data = [];
    this.#dataBytes = 0;
    this.#event = "";
    this.#id = this.lastId;
    this.#retryMs = null;
  }

  /** Decode the next piece; return the messages it completed. */
  feed(chunk: Uint8Array): SseMessage[] {
    this.#throwIfOverflowed();
    const messages: SseMessage[] = [];
    const plain = !this.#afterCr && !chunk.includes(CR);
    const first = plain && this.#lineBytes > 0 ? chunk.indexOf(LF) + 1 : 0; // the end of the incomplete line
    this.#readChunk(chunk.subarray(0, first), messages);
    const rest = chunk.subarray(first);
    this.#readChunk(plain && this.#lineBytes === 0 ? this.#readAsciiLines(rest, messages) : rest, messages);
    if (messages.length === 0) this.#throwIfOverflowed();
    return messages;
  }

  #readChunk(chunk: Uint8Array, messages: SseMessage[]): void {
    for (const part of this.#splitLines(chunk)) {
      if (this.#overflowed || !this.#fits(part.bytes.length)) break;
      const message = part.ended ? this.#readLineBytes(this.#joinLine(part.bytes)) : this.#bufferLine(part.bytes);
      if (message) messages.push(message);
    }
  }

  /** Read all complete lines of a chunk at once if they are ASCII, as most are; return the rest. */
  #readAsciiLines(chunk: Uint8Array, messages: SseMessage[]): Uint8Array {
    const whole = chunk.lastIndexOf(LF) + 1;
    const text = UTF8.decode(chunk.subarray(0, whole));
    if (text.length !== whole) return chunk;
    for (let start = 0, end = 0; start < whole; start = end + 1) {
      end = text.indexOf("\n", start);
      if (this.#overflowed || !this.#fits(end - start)) break;
      const message = this.#readLine(text.slice(start, end), end - start);
      if (message) messages.push(message);
    }
    return chunk.subarray(whole);
  }

  /** End the stream: an unfinished message is dropped, and the next stream may start. */
  flush(): SseMessage[] {
    this.#throwIfOverflowed();
    this.#reset();
    return [];
  }

  #throwIfOverflowed(): void {
    if (this.#overflowed) {
      throw new BadInput(`expected an SSE message of at most ${this.limitBytes} bytes, got more (at stream)`);
    }
  }

  /** Split a chunk into pieces of lines; all but the last end their line. */
  *#splitLines(chunk: Uint8Array): Generator<LinePiece> {
    let start = this.#afterCr && chunk[0] === LF ? 1 : 0;
    if (chunk.length > 0) this.#afterCr = chunk.length > start && chunk.at(-1) === CR;
    let cr = chunk.indexOf(CR, start);
    let lf = chunk.indexOf(LF, start);
    while (cr >= 0 || lf >= 0) {
      const end = cr >= 0 && (lf < 0 || cr < lf) ? cr : lf;
      yield { bytes: chunk.subarray(start, end), ended: true };
      start = end === cr && lf === cr + 1 ? end + 2 : end + 1;
      if (cr >= 0 && cr < start) cr = chunk.indexOf(CR, start);
      if (lf >= 0 && lf < start) lf = chunk.indexOf(LF, start);
    }
    if (start < chunk.length) yield { bytes: chunk.subarray(start), ended: false };
  }

  #fits(bytes: number): boolean {
    if (this.#dataBytes + this.#lineBytes + bytes <= this.limitBytes) return true;
    this.#reset();
    this.#overflowed = true;
    return false;
  }

  #bufferLine(bytes: Uint8Array): null {
    this.#line.push(bytes.slice()); // a copy: the caller may use its buffer again
    this.#lineBytes += bytes.length;
    return null;
  }

  /** Return the complete line that these bytes end. */
  #joinLine(bytes: Uint8Array): Uint8Array {
    if (this.#lineBytes === 0) return bytes;
    const line = new Uint8Array(this.#lineBytes + bytes.length);
    let at = 0;
    for (const piece of [...this.#line, bytes]) {
      line.set(piece, at);
      at += piece.length;
    }
    this.#line = [];
    this.#lineBytes = 0;
    return line;
  }

  #readLineBytes(bytes: Uint8Array): SseMessage | null {
    const text = UTF8.decode(bytes);
    const marked = this.#first && text.startsWith("\ufeff");
    return this.#readLine(marked ? text.slice(1) : text, bytes.length - (marked ? 3 : 0));
  }

  #readLine(line: string, lineBytes: number): SseMessage | null {
    this.#first = false;
    if (line === "") return this.#dispatch();
    const colon = line.includes(":") ? line.indexOf(":") : line.length;
    const start = line[colon + 1] === " " ? colon + 2 : colon + 1;
    const take = Decoder.#FIELDS.get(line.slice(0, colon)); // a comment has no name
    take?.(this, line.slice(start), Math.max(lineBytes - start, 0)); // a known field name is ASCII
    return null;
  }

  #dispatch(): SseMessage | null {
    this.lastId = this.#id;
    const lines = this.#data;
    const message = {
      data: lines.join("\n"),
      event: this.#event || "message",
      id: this.lastId,
      retryMs: this.#retryMs,
    };
    this.#data = [];
    this.#dataBytes = 0;
    this.#event = "";
    this.#retryMs = null;
    return lines.length > 0 ? message : null;
  }

  static #FIELDS = new Map<string, FieldReader>([
    [
      "data",
      (self, value, valueBytes) => {
        self.#data.push(value);
        self.#dataBytes += valueBytes + 1;
      },
    ],
    [
      "event",
      (self, value) => {
        self.#event = value;
      },
    ],
    [
      "id",
      (self, value) => {
        if (!value.includes("\0")) self.#id = value;
      },
    ],
    [
      "retry",
      (self, value) => {
        if (RETRY_PATTERN.test(value)) self.retryMs = self.#retryMs = Number(value);
      },
    ],
  ]);
}
