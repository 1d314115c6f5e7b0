/**
 * The components of A2UI's basic catalog that the console draws itself; the official renderer draws the others.
 *
 * Text       its markdown goes through the console's sanitizer, the only way from text to elements
 * Image      loads blobs of this server and data URLs; another address is a link, as everywhere in the console. A
 *            session with `imageAddress` says which address the page loads
 * Video, AudioPlayer   a link: the page's policy loads no media
 * Icon       a character: the renderer expects a font of another site
 * TextField, DateTimeInput, Slider   the renderer's, whose inputs get the names that it only writes beside them
 */

import {
  A2uiBasicTextFieldElement,
  A2uiDateTimeInputElement,
  A2uiSliderElement,
  AudioPlayerApi,
  BasicCatalogA2uiLitElement,
  DateTimeInputApi,
  IconApi,
  ImageApi,
  SliderApi,
  TextApi,
  TextFieldApi,
  VideoApi,
} from "@a2ui/web_core/v0_9/basic_catalog";
import { css, html, nothing } from "lit";
import { until } from "lit/directives/until.js";

import { renderMarkdown } from "../markdown/render.js";
import { allowedImage, allowedLink, linkHost } from "../markdown/url-policy.js";

const HEADINGS = {
  __proto__: null,
  h1: (words) => html`<h1>${words}</h1>`,
  h2: (words) => html`<h2>${words}</h2>`,
  h3: (words) => html`<h3>${words}</h3>`,
  h4: (words) => html`<h4>${words}</h4>`,
  h5: (words) => html`<h5>${words}</h5>`,
  caption: (words) => html`<small>${words}</small>`,
};

class TextComponent extends BasicCatalogA2uiLitElement {
  static styles = css`
    :host {
      display: block;
      color: var(--_a2ui-text-color, var(--a2ui-text-color-text, var(--a2ui-color-on-background)));
      overflow-wrap: anywhere;
    }
    h1, h2, h3, h4, h5, p, ul, ol { margin: 0; }
    h1 { font-size: var(--a2ui-font-size-2xl); }
    h2 { font-size: var(--a2ui-font-size-xl); }
    h3 { font-size: var(--a2ui-font-size-l); }
    h4 { font-size: var(--a2ui-font-size-m); }
    h5, small { font-size: var(--a2ui-font-size-s); }
    small { color: light-dark(#555, #bbb); }
  `;

  constructor() {
    super();
    this.api = TextApi;
  }

  render() {
    const { text, variant } = this.controller.props ?? {};
    const words = String(text ?? "");
    return HEADINGS[variant]?.(words) ?? html`${renderMarkdown(words)}`;
  }
}

/** Draw an address as a link that shows where it leads. */
function drawLink(address, words) {
  const link = allowedLink(address);
  if (!link) return words ? html`<span>${words}</span>` : nothing;
  return html`<a href=${link} target="_blank" rel="noopener noreferrer">${words || "Open"} (${linkHost(link)})</a>`;
}

class ImageComponent extends BasicCatalogA2uiLitElement {
  static styles = css`
    :host { display: block; }
    img { max-width: 100%; height: auto; border-radius: var(--a2ui-border-radius); }
    img.icon { width: 1.5rem; }
    img.avatar { width: 2.5rem; height: 2.5rem; border-radius: 50%; object-fit: cover; }
    img.smallFeature { max-width: 6rem; }
  `;

  constructor() {
    super();
    this.api = ImageApi;
  }

  render() {
    const { url, variant, accessibility } = this.controller.props ?? {};
    const words = accessibility?.label ?? "";
    const address = allowedImage(url);
    const session = findSurface(this)?.session;
    return address
      ? html`<img src=${session?.imageAddress ? until(session.imageAddress(address), nothing) : address} alt=${words} class=${variant ?? "mediumFeature"}>`
      : drawLink(String(url ?? ""), words || "Image");
  }
}

/** Return the surface around a component, which is in shadow roots of others. */
function findSurface(component) {
  let node = component;
  while (node && node.localName !== "tl-surface") node = node.parentNode ?? node.host;
  return node;
}

class VideoComponent extends BasicCatalogA2uiLitElement {
  constructor() {
    super();
    this.api = VideoApi;
  }

  render() {
    return drawLink(String(this.controller.props?.url ?? ""), "Video");
  }
}

class AudioComponent extends BasicCatalogA2uiLitElement {
  constructor() {
    super();
    this.api = AudioPlayerApi;
  }

  render() {
    return drawLink(String(this.controller.props?.url ?? ""), "Audio");
  }
}

const CHARACTERS = {
  __proto__: null,
  accountCircle: "◉", add: "+", arrowBack: "←", arrowForward: "→", attachFile: "⎘", calendarToday: "▦", call: "✆",
  camera: "◎", check: "✓", close: "✕", delete: "⌫", download: "↓", edit: "✎", event: "▦", error: "⚠", fastForward: "»",
  favorite: "♥", favoriteOff: "♡", folder: "▤", help: "?", home: "⌂", info: "ⓘ", locationOn: "⌖", lock: "⚿",
  lockOpen: "⚿", mail: "✉", menu: "≡", moreVert: "⋮", moreHoriz: "⋯", notificationsOff: "○", notifications: "●",
  pause: "‖", payment: "¤", person: "☺", phone: "✆", photo: "▣", play: "▶", print: "⎙", refresh: "↻", rewind: "«",
  search: "⌕", send: "➤", settings: "⚙", share: "↗", shoppingCart: "⛟", skipNext: "⏭", skipPrevious: "⏮", star: "★",
  starHalf: "⯪", starOff: "☆", stop: "■", upload: "↑", visibility: "◉", visibilityOff: "◌", volumeDown: "◁",
  volumeMute: "◁", volumeOff: "◁", volumeUp: "◀", warning: "⚠",
}; // biome-ignore format: a table

class IconComponent extends BasicCatalogA2uiLitElement {
  static styles = css`
    :host { display: inline-block; line-height: 1; color: var(--a2ui-color-on-background); }
    svg { width: 1.25rem; height: 1.25rem; fill: currentColor; }
  `;

  constructor() {
    super();
    this.api = IconApi;
  }

  render() {
    const { name } = this.controller.props ?? {};
    if (typeof name?.svgPath === "string") {
      return html`<svg viewBox="0 0 24 24" aria-hidden="true"><path d=${name.svgPath}></path></svg>`;
    }
    return html`<span aria-hidden="true">${CHARACTERS[name] ?? "•"}</span>`;
  }
}

/** Return an element of the renderer whose inputs have its label as their name. */
const withNames = (Base) =>
  class extends Base {
    updated(changed) {
      super.updated?.(changed);
      const { label } = this.controller.props ?? {};
      for (const input of this.renderRoot.querySelectorAll("input, textarea")) input.ariaLabel = label ?? null;
    }
  };

const define = (api, tagName, element) => {
  customElements.define(tagName, element);
  return { ...api, tagName };
};

/** Components in the form that a catalog of the renderer takes. */
export const OWN_COMPONENTS = [
  define(TextApi, "tl-a2ui-text", TextComponent),
  define(ImageApi, "tl-a2ui-image", ImageComponent),
  define(VideoApi, "tl-a2ui-video", VideoComponent),
  define(AudioPlayerApi, "tl-a2ui-audio", AudioComponent),
  define(IconApi, "tl-a2ui-icon", IconComponent),
  define(TextFieldApi, "tl-a2ui-text-field", withNames(A2uiBasicTextFieldElement)),
  define(DateTimeInputApi, "tl-a2ui-date-time", withNames(A2uiDateTimeInputElement)),
  define(SliderApi, "tl-a2ui-slider", withNames(A2uiSliderElement)),
];
