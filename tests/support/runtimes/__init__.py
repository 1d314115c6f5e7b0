"""Frameworks for the contract of runtimes: each plays the same scripts with its own agents."""
