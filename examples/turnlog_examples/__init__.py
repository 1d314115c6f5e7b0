"""Example applications of Turnlog, each on the public API only."""
