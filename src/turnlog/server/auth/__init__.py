"""Authentication: credentials, keys, tokens of an identity provider, Host and Origin checks."""
