"""The dialect `ai-sdk`: parts of the UI message stream of the Vercel AI SDK, and messages of a chat."""
