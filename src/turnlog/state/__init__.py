"""Events to state: folds, pure and the same for live, replay, command line and rebuild."""
