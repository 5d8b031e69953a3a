"""Workers, servers, collectives."""
