"""A graph's scope and its session."""
