// A page of document 003, written from its section "Frontend Handling", and the readers of the two formats from
// before it. It knows the address of the server and nothing else of Turnlog: no cursor, no session, no library.

const decoder = new TextDecoder();

async function* dataLines(response) {
  let rest = "";
  for await (const bytes of response.body.pipeThrough(new TransformStream())) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data: ")) yield line.slice(6);
  }
}

const post = (path, body) =>
  fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

// A block per (agent, type): nothing finer.
class BlockReader {
  blocks = [];
  #open = new Map();
  take(line) {
    const { type, agent, final, delta, ...extras } = JSON.parse(line);
    const key = `${agent} ${type}`;
    if (type === "tool_result_image") {
      this.#open.get(`${agent} tool_result`).images.push(extras);
      return null;
    }
    if (type === "citation") {
      const texts = this.blocks.filter((block) => block.type === "text" && block.agent === agent);
      texts.at(-1).citations.push({ ...extras, cited: delta });
      return null;
    }
    let block = this.#open.get(key);
    if (!block) {
      block = { type, agent, content: "", complete: false, extras, images: [], citations: [] };
      this.#open.set(key, block);
      this.blocks.push(block);
    }
    block.content += delta;
    if (final) {
      block.complete = true;
      this.#open.delete(key);
    }
    return final ? block : null;
  }
}

async function converse(prompt, uuid, query) {
  const reader = new BlockReader();
  let response = await post(`/agent/run${query}`, { user_prompt: prompt, agent_uuid: uuid, agent_type: "agent_all_json" });
  for (;;) {
    let pending = null;
    let done = false;
    for await (const line of dataLines(response)) {
      if (line === "[DONE]") done = true;
      else {
        const block = reader.take(line);
        if (block?.type === "awaiting_frontend_tools") pending = JSON.parse(block.content);
      }
    }
    if (!done) throw new Error("the stream ended without [DONE]");
    if (pending === null) return reader.blocks;
    const tool_results = pending.map(({ tool_use_id }) => ({ tool_use_id, content: true, is_error: false }));
    response = await post(`/agent/tool_results${query}`, { agent_uuid: uuid, tool_results, agent_type: "agent_all_json" });
  }
}

async function showImages(sources) {
  const sizes = [];
  for (const src of sources) {
    const image = new Image();
    image.src = src;
    await image.decode();
    document.body.append(image);
    sizes.push(image.naturalWidth);
  }
  return sizes;
}

const TAGS = new Set([
  "content-block-text", "content-block-thinking", "content-block-tool_call", "content-block-tool_result",
  "content-block-server_tool_call", "content-block-server_tool_result", "content-block-error", "content-block-meta_files",
  "meta_init", "meta_final", "awaiting_frontend_tools", "citations", "citation",
]);

const decodeEntities = (text) => {
  const area = document.createElement("textarea");
  area.innerHTML = text;
  return area.value;
};

function readTags(chunks) {
  const sections = [];
  const text = chunks.join("").replace(/<!\[CDATA\[([\s\S]*?)\]\]>/g, (_, content) => {
    sections.push(content);
    return `\u0000${sections.length - 1}\u0001`;
  });
  const shown = (piece) =>
    piece.replace(/\u0000(\d+)\u0001/g, (_, at) => sections[Number(at)]).replace(/\\n/g, "\n");
  const root = { tag: "root", attributes: {}, children: [], text: "" };
  const stack = [root];
  let at = 0;
  const tag = /<(\/?)([a-zA-Z][a-zA-Z0-9_:-]*)([^>]*)>/g;
  for (let match = tag.exec(text); match; match = tag.exec(text)) {
    const [whole, slash, name, attributeText] = match;
    if (!TAGS.has(name) && !name.endsWith("_tool_result")) continue;
    stack.at(-1).text += shown(text.slice(at, match.index));
    at = match.index + whole.length;
    if (slash) {
      while (stack.length > 1 && stack.pop().tag !== name);
      continue;
    }
    const attributes = {};
    for (const [, key, value] of attributeText.matchAll(/([a-zA-Z0-9_:-]+)="([^"]*)"/g)) attributes[key] = decodeEntities(value);
    const node = { tag: name, attributes, children: [], text: "" };
    stack.at(-1).children.push(node);
    stack.push(node);
  }
  return { nodes: root.children, outside: root.text + shown(text.slice(at)) };
}

async function converseInTags(prompt, uuid, query) {
  const lines = [];
  let response = await post(`/agent/run${query}`, { user_prompt: prompt, agent_uuid: uuid });
  for (;;) {
    const tags = [];
    for await (const line of dataLines(response)) {
      if (line === "[DONE]") continue;
      if (line.trim()) lines.push(line);
      if (line.startsWith("<")) tags.push(line);
    }
    const awaiting = readTags(tags).nodes.find(({ tag }) => tag === "awaiting_frontend_tools");
    if (!awaiting) break;
    const tool_results = JSON.parse(awaiting.attributes.data).map(({ tool_use_id }) => ({ tool_use_id, content: true }));
    response = await post(`/agent/tool_results${query}`, { agent_uuid: uuid, tool_results });
  }
  const meta = lines[0].match(/<meta_init\s+data="([^"]*)"[^>]*><\/meta_init>/);
  return { meta: JSON.parse(decodeEntities(meta[1])), lines };
}

// The provider's events, a list of blocks per message.
function readRaw(lines) {
  const messages = [];
  const open = new Map();
  for (const line of lines) {
    if (line.startsWith("<")) continue;
    const event = JSON.parse(line);
    const blocks = open.get(event.agent) ?? [];
    if (event.type === "message_start") {
      open.set(event.agent, []);
      messages.push({ agent: event.agent, blocks: open.get(event.agent) });
    } else if (event.type === "content_block_start") {
      blocks[event.index] = { ...event.content_block, content: event.content_block.content ?? "", citations: [] };
    } else if (event.type === "content_block_delta") {
      const { text, thinking, partial_json } = event.delta;
      blocks[event.index].content += text ?? thinking ?? partial_json ?? "";
    } else if (event.type === "content_block_stop") {
      blocks[event.index].citations = event.content_block?.citations ?? [];
    }
  }
  return messages;
}
