// What a test does in a page, and what it looks for. It is there before the page's own scripts.

(() => {
  /** A page's markup can take the place of what a document has: this asks the prototype. */
  const one = (selector) => Document.prototype.querySelector.call(document, selector);
  const OWN_CLASSES = new Set(
    ("block loaded plain prose scroll task formula code-comment code-keyword code-name code-string code-type code-value")
      .split(" ")
      .concat("", "formula display"),
  );
  const PROSE = new Set(
    ("A BLOCKQUOTE BR CODE DEL EM FIGCAPTION FIGURE H3 H4 H5 H6 HR IMG LI OL P PRE STRONG TABLE TBODY TD TH THEAD " +
      "TR UL DIV BUTTON INS KBD MARK SUB SUP SPAN VAR").split(" "),
  );
  const IN_PROSE = new Set("align alt class dir href rel src start tabindex target title type".split(" "));
  const IN_FORMULAS = new Set(
    ("xmlns display encoding mathvariant mathcolor mathbackground stretchy fence separator accent accentunder form lspace " +
      "rspace width height depth minsize maxsize linethickness scriptlevel displaystyle rowspacing columnspacing " +
      "columnalign rowlines columnlines notation voffset movablelimits largeop symmetric class").split(" "),
  );
  const TAGS =
    "script, iframe, frame, frameset, object, embed, applet, base, meta, link, style, template, portal, svg, :not(var.formula) > math, " +
    "map, area, audio, video, source, track, picture, dialog, marquee, noscript noscript, " +
    ".prose :is(tl-text, tl-sign-in, form, input, select, textarea, details)";
  const LOADING = "srcset poster background formaction ping srcdoc is http-equiv xlink:href manifest longdesc".split(" ");
  const HEAD = /^META META TITLE LINK:icon LINK:stylesheet(?: LINK:modulepreload)* SCRIPT$/;
  const OWN = /^(?:favicon\.svg|console\.css|chunk-\w+\.js)$/;
  const IMAGE = /^(?:api\/blobs\/[\w/-]+|data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*)$/;
  const MORE = /^\s*Show (?:earlier|all|more)/;
  const COPY = /^\s*Copy/;
  const MARKS = /[a-z0-9-]+(?:\.evil\.test)?\/[a-z-]+/g;
  const STEPS = 200; // of showing more: of what is longer than that, so much is enough
  const EACH = 30;
  const CHOICES = 5;
  const MAX_FRAMES = 7200; // two minutes at most speed: a guard, not a measure
  const REL = ["noopener", "noreferrer", "nofollow"];

  const isOwn = (link) => link.getAttribute("href").startsWith("?") && !link.closest(".prose");

  /** What is wrong with an element, by the name of a rule. */
  const RULES = {
    tag: (element) => element.matches(TAGS) && !element.matches("body > noscript"),
    handler: (element) => element.getAttributeNames().some((name) => /^on/i.test(name)),
    loading: (element) => LOADING.some((name) => element.hasAttribute(name)),
    action: (element) => element.hasAttribute("action") || (element.matches(".prose [data]")),
    style: (element) => /url|image|fixed|expression|import/i.test(element.getAttribute("style") ?? ""),
    link: (element) => {
      if (!element.hasAttribute("href") || isOwn(element)) return false;
      const rel = (element.getAttribute("rel") ?? "").split(" ");
      const held = element.target === "_blank" && REL.every((word) => rel.includes(word));
      return !(held && /^(?:https?|mailto):$/.test(element.protocol) && URL.canParse(element.getAttribute("href")));
    },
    source: (element) => element.hasAttribute("src") && !(element.tagName === "IMG" && IMAGE.test(element.getAttribute("src"))),
    formula: (element) =>
      element.matches("math, math *") && element.getAttributeNames().some((name) => !IN_FORMULAS.has(name)),
    prose: (element) =>
      element.matches(".prose *") &&
      !element.matches("var.formula > math, var.formula > math *") &&
      (!PROSE.has(element.tagName) ||
        !OWN_CLASSES.has(element.className) ||
        element.getAttributeNames().some((name) => !IN_PROSE.has(name))),
  };

  const shown = (element) => element.outerHTML.slice(0, 200);

  /** Everything below an element that must not be there: [rule, markup]. */
  function scan(root = one("body")) {
    const found = [];
    for (const element of root.getElementsByTagName("*"))
      for (const [rule, breaks] of Object.entries(RULES)) if (breaks(element)) found.push([rule, shown(element)]);
    const links = [...one("head").querySelectorAll("link")];
    const head = [...one("head").children].map(({ tagName, rel }) => (rel ? `${tagName}:${rel}` : tagName)).join(" ");
    if (!HEAD.test(head) || !links.every((link) => OWN.test(link.getAttribute("href")))) found.push(["head", head]);
    const more = [...Object.keys(Object.prototype), ...Object.keys(Array.prototype)];
    if (more.length) found.push(["prototype", more.join(" ")]);
    return found;
  }

  const frames = async (count) => {
    while (count--) await new Promise(requestAnimationFrame);
  };

  async function until(holds) {
    for (let left = MAX_FRAMES; !holds(); await frames(1)) if (!left--) throw new Error(`expected ${holds}`);
  }

  const session = () => one("tl-console")?.session;
  const panel = () => one("#panel[role=tabpanel]");
  const live = () => until(() => session()?.connection === "live");

  /** Wait until an element is as it stays. */
  async function still(root) {
    for (let last = -1, calm = 0; calm < 2; await frames(1)) {
      const now = root.getElementsByTagName("*").length;
      const busy = root === panel() && root.querySelector("[aria-busy=true]");
      calm = now === last && !busy ? calm + 1 : 0;
      last = now;
    }
  }

  /** What is found in a page on the way through it. */
  class Finds {
    stood = [];
    shown = new Set();
    texts = 0;

    look(root = one("body")) {
      this.stood.push(...scan(root));
      this.read(root);
    }

    /** The payloads that can be read below an element, in fields too. */
    read(root) {
      const said = [...root.querySelectorAll("input, textarea")].flatMap(({ value, placeholder }) => [value, placeholder]);
      const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) said.push(texts.currentNode.data);
      for (const [mark] of said.join("\n").matchAll(MARKS)) this.shown.add(mark);
      this.texts = Math.max(this.texts, root.querySelectorAll("tl-text").length);
    }

    get told() {
      return { stood: this.stood, shown: [...this.shown].join(" "), texts: this.texts };
    }
  }

  /** Show all that can be shown below an element, and press what copies. */
  async function expand(root) {
    for (let step = 0; step < STEPS; step += 1) {
      const buttons = [...root.querySelectorAll("button")].filter(({ textContent }) => MORE.test(textContent));
      if (!buttons.length) break;
      buttons.forEach((button) => button.click());
      await frames(1);
    }
    for (const fold of root.querySelectorAll("details")) fold.open = true;
    await frames(2);
    for (const button of root.querySelectorAll("button")) if (COPY.test(button.textContent)) button.click();
    await frames(1);
  }

  async function home(problems) {
    const finds = new Finds();
    await until(() => one("tl-home"));
    for (const message of problems) {
      one("tl-console").dispatchEvent(new CustomEvent("error-message", { detail: { message } }));
    }
    await frames(2);
    finds.look();
    return finds.told;
  }

  async function chat() {
    const finds = new Finds();
    const element = one("tl-chat");
    await still(element);
    await expand(element);
    for (const image of element.querySelectorAll("img[loading=lazy]")) {
      image.scrollIntoView();
      await frames(1);
    }
    await still(element);
    finds.look();
    return finds.told;
  }

  async function insert(markup) {
    one("body").append(document.createRange().createContextualFragment(markup));
    return broken();
  }

  async function broken() {
    const finds = new Finds();
    await frames(5);
    finds.look();
    return finds.told;
  }

  function goTo(parameters) {
    const place = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(parameters)) place.set(name, value);
    history.replaceState(null, "", `?${place}`);
    dispatchEvent(new PopStateEvent("popstate"));
  }

  /** The first event of every type, whole. */
  async function details(finds) {
    const first = new Map();
    for (const { type, seq } of session().log.events) if (!first.has(type)) first.set(type, seq);
    for (const seq of first.values()) {
      goTo({ panel: "events", seq });
      await until(() => one(`tl-event [data-seq="${seq}"]`));
      for (const fold of panel().querySelectorAll("tl-event details")) fold.open = true;
      await frames(1);
      finds.look(panel());
    }
  }

  /** Some documents of each kind, and every file, whole. */
  async function documents(finds) {
    const files = [...panel().querySelectorAll("tl-files button.document")];
    const all = [...panel().querySelectorAll("details button.document")];
    for (const button of [...files, ...all.filter((_, at) => at % EACH === 0)]) {
      button.click();
      await one("tl-documents").updateComplete;
      finds.look(panel());
    }
  }

  /** The first choices of the list that says what is shown. */
  async function choices(finds) {
    const select = panel().querySelector("select");
    for (const { value } of [...select.options].slice(0, CHOICES)) {
      select.value = value;
      select.dispatchEvent(new Event("change", { bubbles: true }));
      await still(panel());
      finds.look(panel());
    }
  }

  async function tries(finds) {
    for (const button of panel().querySelectorAll(".tries button")) button.click();
    finds.look();
  }

  const DEEPER = { guide: tries, events: details, timeline: choices, state: choices, documents };

  /** All panels, and if wanted all that each of them can show. */
  async function panels(deep) {
    const finds = new Finds();
    for (const tab of document.querySelectorAll("[role=tab]")) {
      tab.click();
      await still(panel());
      await expand(panel());
      finds.look(panel());
      if (deep) await DEEPER[tab.id.slice("tab-".length)]?.(finds);
    }
    return finds.told;
  }

  /** Look at every frame until the next turn has ended. */
  let watching = null;
  function watch() {
    const finds = new Finds();
    const before = session().log.events.length;
    const ended = () => session().log.events.slice(before).some(({ type }) => type === "agent.end");
    const look = async () => {
      for (; !ended(); await frames(1)) for (const text of document.querySelectorAll("tl-flow")) finds.look(text);
      await frames(2);
      finds.look();
      return finds.told;
    };
    watching = look();
  }

  globalThis.probe = { broken, insert, live, home, chat, panels, watch, watched: () => watching };
})();
