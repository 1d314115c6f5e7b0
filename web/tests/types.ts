// Compiled by `npm run types`, never run: the types of the package as a page uses them. `@ts-expect-error` is a
// control: the compiler must refuse the line below it.

import type {
  ApprovalRequest,
  FoldState,
  Part,
  Snapshot,
  ViewNode,
  ChatResult,
  DirectEvent,
  ErrorInfo,
  Feed,
  FeedState,
  Json,
  LogEvent,
  Pending,
  PostedEvent,
  Problem,
} from "@turnlog/client";
import {
  newId,
  buildFault,
  Client,
  emptyState,
  followEvents,
  readViewNode,
  reduceEvents,
  reportMeters,
  resetState,
  SessionStore,
  Conflict,
  connect,
  createHttpError,
  Forbidden,
  findView,
  Gone,
  HttpError,
  Invalid,
  listPending,
  Meters,
  Names,
  NotFound,
  NotSignedIn,
  NODES_KIND,
  OpenViews,
  OtherPrincipal,
  TooMany,
  Transcript,
  Tree,
  TurnlogError,
  Unreachable,
  viewKey,
} from "@turnlog/client";
import type { Block, BlockJson, PendingFrontendCall } from "@turnlog/client/assembler";
import {
  A2UI_KIND,
  applyMessages,
  checkA2uiAction,
  measure,
  snapshotMessages,
  SurfaceError,
  surfaceSize,
} from "@turnlog/client/a2ui";
import { Assembler } from "@turnlog/client/assembler";
import { isBlank, validateField } from "@turnlog/client/fields";
import { isEmptyView, MAX_PARTS, validateView, walkView } from "@turnlog/client/schema";
import { collectDocuments, Documents, Roster, toDocument } from "@turnlog/client/team";
import type { SseMessage } from "@turnlog/client/sse";
import { BadInput, Decoder, MAX_MESSAGE_BYTES } from "@turnlog/client/sse";

declare module "@turnlog/client" {
  interface Payloads {
    "broker.record_eligibility": { eligible: boolean };
  }
}

/** An empty list of arguments where both types are the same; `any` is the same as itself alone. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? [] : ["the types differ"];

/** Compiles where a value has exactly the expected type. */
const expectType =
  <Expected>() =>
  <Actual>(_value: Actual, ..._same: Same<Actual, Expected>) => {};

// The example of the README.

export async function readme() {
  const client = new Client();
  const session = await client.createSession();
  let transcript = new Transcript();

  const feed = connect({
    session,
    onEvent: (event) => transcript.apply(event),
    onReset: () => (transcript = new Transcript()),
    onState: (state) => console.log(state),
  });
  await client.send("Oslo", { session });
  expectType<Feed>()(feed);
}

// SessionStore

export async function page() {
  const store = new SessionStore({ session: "sess_1", url: "https://example.org/", token: async () => "fresh" });
  const snapshot: Snapshot = store.getSnapshot();
  expectType<() => void>()(store.subscribe(() => {}));
  for (const message of snapshot.messages) {
    if (message.role === "user") expectType<"sending" | "failed" | "queued" | "sent">()(message.state);
    for (const part of message.parts) await act(store, part);
  }
  expectType<string>()(await store.send("Oslo", { channel: "customer", target: "Guide" }));
  expectType<number>()(await store.stop({ turn: "tr_1" }));
  expectType<number | undefined>()(snapshot.usage.session?.cost_usd);
  for (const call of snapshot.pending) await store.decide(call, "deny", "no");

  // @ts-expect-error: a snapshot does not change
  snapshot.messages.push(snapshot.messages[0]);
  // @ts-expect-error: nor does a part of it
  snapshot.title = "Oslo";

  const state = reduceEvents(emptyState("sess_1"), []);
  expectType<FoldState>()(resetState(state));
  expectType<number>()(reportMeters(snapshot.usage).session.turns);
  expectType<Pending>()(listPending(store.tree));
}

function draw(part: Part): string {
  const node: ViewNode | null = part.type === "view" ? readViewNode(part.view) : null;
  if (node?.type !== "form") return "";
  // @ts-expect-error: a form has no such field
  node.colour;
  return node.fields.map((field) => `${field.label} ${validateField(field, null)}`).join();
}

async function act(store: SessionStore, part: Part) {
  draw(part);
  if (part.type === "question") await store.answer(part, true);
  if (part.type === "approval") await store.decide(part, "approve");
  if (part.type === "view") await store.act(part, { kind: "button.click", button_id: "b" });
  if (part.type === "agent") for (const inner of part.parts) await act(store, inner);
  // @ts-expect-error: a text has no call
  if (part.type === "text") part.call_id;
}

export async function iterate() {
  for await (const event of followEvents({ session: "sess_1" })) expectType<LogEvent>()(event);
  const client = new Client({ headers: { "x-tenant": "a" }, credentials: "include" });
  client
    .withSignal(AbortSignal.timeout(10))
    .connect({ session: "sess_1", onEvent: (event) => expectType<LogEvent>()(event) });
}

// connect

export function following() {
  const feed = connect({ session: "sess_1", onEvent: (_event, place) => expectType<string>()(place.cursor) });
  expectType<FeedState>()(feed.state);
  expectType<string>()(feed.cursor);
  feed.close();

  connect({
    sessions: ["sess_1", "sess_2"],
    url: "https://example.org/turnlog/",
    after: null,
    token: "secret",
    types: ["tool"],
    depth: 0,
    parameters: { stream_tool_results: false },
    transport: "eventsource",
    share: "ada",
    timing: { retryMs: 10 },
    onReset: ({ epoch }) => expectType<string>()(epoch),
    onError: (error) => expectType<HttpError>()(error),
  });
  connect({ session: "sess_1", turn: "tr_1", dialect: "blocks", onEvent: (data) => expectType<string>()(data) });
  connect({ session: "sess_1", dialect: "shop.orders", onEvent: (data) => expectType<string>()(data) });

  // @ts-expect-error: one session or several
  connect({ session: "sess_1", sessions: ["sess_2"] });
  // @ts-expect-error: no session
  connect({});
  // @ts-expect-error: another dialect gives text
  connect({ session: "sess_1", dialect: "blocks", onEvent: (event: LogEvent) => event.seq });
  // @ts-expect-error: no such transport
  connect({ session: "sess_1", transport: "websocket" });
  // @ts-expect-error: a state is read
  feed.state = "live";
}

// Events narrow by their type, those of an application too.

export function narrowing(event: LogEvent) {
  expectType<number>()(event.seq);
  if (event.type === "assistant.message") expectType<string>()(event.payload.text);
  if (event.type === "broker.record_eligibility") expectType<boolean>()(event.payload.eligible);
  // @ts-expect-error: not every event has a text
  event.payload.text;
  // @ts-expect-error: no such type
  if (event.type === "assistant.mesage") return;
}

// Client

export async function asking(client: Client, request: ApprovalRequest) {
  new Client({ url: "https://example.org/", token: "secret", retryMs: 10 });
  const sent = await client.send("Hello", { app: "tour", channel: "customer", target: "Guide", key: "k" });
  expectType<number>()(sent.eventId);
  expectType<string | undefined>()(sent.session);

  const direct: DirectEvent = { type: "record_eligibility", data: { isOver18: true }, id: "017f22e2" };
  const chat = await client.chat<{ status: string }>("customer", { sessionId: "sess_1", directEvents: [direct] });
  expectType<ChatResult<{ status: string }>>()(chat);
  expectType<string>()(chat.displayText);
  expectType<string>()(chat.state.status);
  expectType<Json>()((await client.chat("customer", { sessionId: "sess_1", message: "Hi", key: "k" })).state);

  const note: PostedEvent = { type: "broker.record_eligibility", payload: { eligible: true } };
  expectType<number[]>()(await client.dispatch("sess_1", [note]));
  expectType<number>()(await client.stop("sess_1", { turn: "tr_1", agent: "agt_1" }));
  expectType<number>()(await client.answer("sess_1", { call_id: "c", tool: "ask" }, { a: [1, null] }));
  const fault: ErrorInfo = { code: "NO", message: "no" };
  expectType<number>()(await client.fail("sess_1", { call_id: "c", tool: "ask" }, fault));
  expectType<number>()(await client.decide("sess_1", request, "deny", "too dear"));
  const click = { kind: "button.click", button_id: "b" } as const;
  expectType<number>()(await client.submitView("sess_1", "v", click, { shown: "evt_1" }));
  expectType<number>()(await client.submitInput("sess_1", { call_id: "c" }, { weight: 3 }));
  expectType<string>()(await client.link("sess_1", ["customer"], { name: "Sarah" }));
  expectType<{ eventId: number }>()(await client.renameSession("sess_1", "Oslo"));
  expectType<void>()(await client.closeSession("sess_1"));
  expectType<void>()(await client.deleteSession("sess_1"));
  expectType<string | undefined>()((await client.listInvites({ session: "sess_1" }))[0]?.principal);
  expectType<number>()((await client.acceptInvite("sess_1", "inv_1")).eventId);
  expectType<number>()((await client.declineInvite("sess_1", "inv_1")).eventId);
  expectType<number>()((await client.revokeInvite("sess_1", "inv_1")).eventId);
  expectType<string>()(await client.createSession({ app: "tour", title: "A trip" }));

  const {
    sessions: [info],
    next,
  } = await client.listSessions({ limit: 20, after: "1-sess_1", search: "Oslo" });
  expectType<string | undefined>()(next);
  expectType<"idle" | "running" | "waiting" | "closed" | undefined>()(info?.state);
  const told = await client.state<{ count: number }>("sess_1", { at: 7, include: ["open", "roster"] });
  expectType<number>()(told.state.count);
  expectType<Pending | undefined>()(told.open);
  expectType<Json>()((await client.state("sess_1")).state);
  const [document] = (await client.documents({ session: "sess_1", type: "message", category: "transcript" })).documents;
  expectType<string | undefined>()(document?.session_id);
  expectType<string>()(await client.log("sess_1", { after: 3 }));
  expectType<string[]>()((await client.me()).roles);
  expectType<unknown>()(await client.signOut());
  expectType<boolean | undefined>()((await client.apps())[0]?.process);

  // @ts-expect-error: no such payload
  client.dispatch("sess_1", [{ type: "broker.record_eligibility", payload: { eligible: "yes" } }]);
  // @ts-expect-error: a chat is of a session
  client.chat("customer", { message: "Hi" });
  // @ts-expect-error: a decision is one of two
  client.decide("sess_1", request, "maybe");
  // @ts-expect-error: a function is no JSON
  client.answer("sess_1", { call_id: "c", tool: "ask" }, () => 1);
  // @ts-expect-error: no such part of the state
  client.state("sess_1", { include: ["secrets"] });
  // @ts-expect-error: the session comes first
  client.link(["customer"]);
}

// Folds

export function folding(event: LogEvent) {
  const isOwn = (type: string) => type.startsWith("broker.");
  const transcript = new Transcript(isOwn);
  transcript.apply(event);
  expectType<"user" | "assistant" | "note" | undefined>()(transcript.messages[0]?.who);
  expectType<string | undefined>()(transcript.visibleTo(["customer"])[0]?.text);

  const tree = new Tree(isOwn);
  tree.apply(event);
  expectType<number>()(tree.last);
  expectType<Set<string>>()(tree.waitingAgents());
  expectType<string | null>()(tree.child("agt_1", "c"));
  expectType<string[]>()(tree.agentsAsking());
  expectType<boolean[]>()([tree.isWaiting("agt_1"), tree.isRunning("tr_1"), tree.isSettled("tr_1")]);
  const open = listPending(tree);
  expectType<Pending>()(open);
  expectType<"page" | "approval" | "remote" | "agent" | "provider" | "backend" | "runtime" | undefined>()(
    open.calls[0]?.waits_for,
  );

  const names = new Names();
  names.apply(event);
  expectType<string>()(names.displayName("guest_1"));
  expectType<string | undefined>()(names.names.get("guest_1"));

  const meters = new Meters();
  meters.apply(event);
  expectType<number>()(meters.report().session.turns);
  expectType<Meters>()(meters.visibleTo(["customer"]));

  const roster = new Roster();
  roster.apply(event);
  expectType<string | undefined>()(roster.report()[0]?.grid[0]?.name);

  const changed = new Documents().apply(event);
  expectType<string | undefined>()(changed[0]?.id);
  expectType<string | undefined>()(toDocument(event)?.id);
  expectType<number>()(collectDocuments([event]).size);

  // @ts-expect-error: an event, not its text
  transcript.apply("text");
  // @ts-expect-error: a fold is not set from outside
  tree.last = 3;
  // @ts-expect-error: a message has no such field
  open.calls[0]?.waitsFor;
}

// Views

export function viewing(event: LogEvent) {
  const views = new OpenViews();
  views.apply(event);
  const action = { action: { kind: "button.click", button_id: "b" }, view_id: "v" } as const;
  expectType<Problem[]>()(views.validateAction(action, "customer"));
  views.applyAction(action, null);
  expectType<ErrorInfo>()(buildFault(views.validateAction(action)));
  expectType<string | undefined>()(views.open.get(viewKey(null, "v"))?.event_id);
  expectType<string | undefined>()(findView(views.open.values(), action, "customer")?.event_id);

  const tree = { type: "screen", id: "s", children: [] };
  expectType<boolean>()(isEmptyView(tree));
  expectType<string | undefined>()(validateView(tree)?.path);
  for (const { path } of walkView(tree)) expectType<string>()(path);
  expectType<number>()(MAX_PARTS);
  expectType<string[]>()([A2UI_KIND, NODES_KIND]);
  const surface = applyMessages(null, "s", { messages: [] });
  if (surface) expectType<number>()(surfaceSize(surface) + snapshotMessages(surface).length + measure("a"));
  expectType<string[]>()(
    checkA2uiAction(surface, { component_id: "b", name: "book", context: {} }).map(({ message }) => message),
  );
  expectType<Error>()(new SurfaceError("it does not fit"));
  expectType<boolean>()(isBlank(newId()));
  expectType<string | null>()(validateField({ type: "field.text", name: "a", label: "A" }, "x"));

  // @ts-expect-error: no such action
  views.validateAction({ action: { kind: "button.press", button_id: "b" }, view_id: "v" });
}

// Errors

export function failing(error: unknown) {
  if (error instanceof HttpError) expectType<number>()(error.status);
  if (error instanceof HttpError) expectType<ErrorInfo | null>()(error.fault);
  const kinds = [Invalid, NotSignedIn, Forbidden, NotFound, Conflict, Gone, OtherPrincipal, TooMany];
  for (const Kind of kinds) expectType<number>()(new Kind("no", 400).retryAfterMs);
  const unreachable = new Unreachable("away");
  if (unreachable instanceof TurnlogError) expectType<Unreachable>()(unreachable);
  expectType<HttpError>()(createHttpError(409, "no", { retryAfterMs: 10 }));
  // @ts-expect-error: only a refusal has a status
  unreachable.status;
}

// The reader of the dialect `blocks`, and the decoder below it

export function reading(bytes: Uint8Array) {
  const decoder = new Decoder(MAX_MESSAGE_BYTES);
  const assembler = new Assembler();
  for (const message of [...decoder.feed(bytes), ...decoder.flush()]) {
    expectType<SseMessage>()(message);
    expectType<Block[]>()(assembler.feed(message.data, message.id));
  }
  expectType<Block[]>()(assembler.flush());
  expectType<PendingFrontendCall[]>()(assembler.pending);
  expectType<string>()(assembler.transcript());
  for (const block of assembler.asJson().blocks) text(block);
  expectType<string>()(new BadInput("too long").name);
  // @ts-expect-error: bytes, not text
  decoder.feed("data: 1");
}

function text(block: BlockJson): string {
  if (block.type === "text" || block.type === "thinking") return block.text;
  // @ts-expect-error: a call has arguments, not a text
  if (block.type === "tool_call") return block.text;
  return "";
}
