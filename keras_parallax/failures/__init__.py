"""How a lost rank is detected, and which rank reports it."""
