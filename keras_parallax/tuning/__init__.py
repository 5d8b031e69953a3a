"""Experiments on a running job: how many shards, which architecture, where rows are."""
