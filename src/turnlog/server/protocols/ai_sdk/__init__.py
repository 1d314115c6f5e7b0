"""The UI message stream of the Vercel AI SDK: routes, and the input of a chat."""
