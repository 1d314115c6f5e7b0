"""The provider of a model, from the model's name: a log has no other word for it. Pure.

In: a name such as `claude-sonnet-4-5`, `anthropic:claude-sonnet-4-5` or `openai/gpt-5`. Out: a value of
`gen_ai.provider.name`. The conventions ask for the best knowledge: a model behind a proxy has the name of
its maker.
"""

UNKNOWN_PROVIDER = "turnlog"  # the attribute is required

# prefixes before a colon or a slash, as frameworks write them, and the values of the conventions
PROVIDERS = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "gemini": "gcp.gemini",
    "google": "gcp.gen_ai",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "google_genai": "gcp.gemini",
    "google_vertexai": "gcp.vertex_ai",
    "grok": "x_ai",
    "groq": "groq",
    "mistral": "mistral_ai",
    "mistralai": "mistral_ai",
    "openai": "openai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "perplexity": "perplexity",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
# the first words of models' own names
FAMILIES = {
    "chatgpt": "openai",
    "claude": "anthropic",
    "codestral": "mistral_ai",
    "command": "cohere",
    "deepseek": "deepseek",
    "gemini": "gcp.gen_ai",
    "gpt": "openai",
    "grok": "x_ai",
    "ministral": "mistral_ai",
    "mistral": "mistral_ai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "sonar": "perplexity",
}


def find_provider(model: str | None) -> str:
    """Return the provider of a model; `UNKNOWN_PROVIDER` if its name does not tell."""
    words = (model or "").lower().replace(":", "/").split("/")
    for word in words[:-1]:
        if word in PROVIDERS:
            return PROVIDERS[word]
    family = words[-1].split("-", 1)[0]
    return FAMILIES.get(family, UNKNOWN_PROVIDER)
