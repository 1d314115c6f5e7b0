/** `TurnlogProvider`: gives the components below it one client and one store for each session. */

import type { Client, TokenSource } from "@turnlog/client";
import {
  createContext,
  createElement,
  type ReactElement,
  type ReactNode,
  useContext,
  useInsertionEffect,
  useMemo,
  useRef,
} from "react";
import { type SessionEntry, SessionStores, type SessionStoresOptions } from "./session-stores.js";

const StoresContext = createContext<SessionStores | null>(null);

/**
 * The options of `SessionStore`, without the session. Another `client`, `url` or `principal` begins with new stores, which
 * read the other options. Of a `token` that is a function the stores call the one of the last render.
 */
export interface TurnlogProviderProps extends SessionStoresOptions {
  children?: ReactNode;
}

export function TurnlogProvider({ children, ...options }: TurnlogProviderProps): ReactElement {
  const { client, url, principal, token } = options;
  const latestToken = useRef(token);
  useInsertionEffect(() => {
    latestToken.current = token;
  });
  // not all options: a function or an object that a page writes inline is new in every render
  const stores = useMemo(() => new SessionStores(withLatestToken(options, latestToken)), [client, url, principal]);
  return createElement(StoresContext, { value: stores }, children);
}

/** Return the options with a token function that calls the latest one, which knows the page's current state. */
function withLatestToken(
  options: SessionStoresOptions,
  latest: { readonly current: TokenSource | undefined },
): SessionStoresOptions {
  const { token } = options;
  if (typeof token !== "function") return options;
  return {
    ...options,
    token: () => (typeof latest.current === "function" ? latest.current() : (latest.current ?? "")),
  };
}

function useStores(): SessionStores {
  const stores = useContext(StoresContext);
  if (stores === null) throw new Error("expected a <TurnlogProvider> around this component");
  return stores;
}

/** Return the client of the provider, for requests about no single session. */
export const useClient = (): Client => useStores().client;

export const useSessionEntry = (session: string): SessionEntry => useStores().entry(session);
