"""How a lost worker is detected, and which worker reports it."""
