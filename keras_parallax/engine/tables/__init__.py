"""A sharded table: its variable, rows, pulls, initial values."""
