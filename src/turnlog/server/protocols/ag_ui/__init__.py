"""AG-UI 1.0: routes, the input of a run, capabilities."""
