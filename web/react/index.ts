/** Turnlog for React: the sessions of a server as hooks. */

export { TurnlogProvider, type TurnlogProviderProps, useClient } from "./provider.js";
export type { SessionActions, SessionStoresOptions } from "./session-stores.js";
export {
  type Session,
  useMessage,
  useMessageIds,
  usePart,
  usePartIds,
  useSession,
  useSessionActions,
  useSessionValue,
} from "./use-session.js";
