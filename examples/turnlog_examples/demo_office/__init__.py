"""The office of `turnlog demo`: a program that speaks like the Claude CLI, so that the example runs offline.

`command` says how to start it. An application of your own needs none of this: it names the real program.
"""
