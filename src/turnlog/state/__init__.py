"""Events to state: pure folds, the same for live events, replay, command line and rebuild."""
