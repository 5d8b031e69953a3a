"""One training step of a job: servers, sessions, tables, updates."""
