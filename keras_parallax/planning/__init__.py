"""Pure functions from the description of a model to a plan."""
