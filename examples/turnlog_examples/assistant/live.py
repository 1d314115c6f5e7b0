"""The assistant with a real model, which thinks and searches the web; the SDK takes ANTHROPIC_API_KEY."""

from turnlog_examples.assistant.team import make_app, searching

app = make_app(model=searching("claude-sonnet-4-5"))
