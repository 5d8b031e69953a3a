"""One training step: gradients, exchange, barrier, tuning."""
