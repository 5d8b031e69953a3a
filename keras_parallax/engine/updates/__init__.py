"""Optimizers' formulas on shards and on rows."""
