"""A credit broker: an agent and two pages that share one case, as events."""
