"""Ranks, servers, collectives."""
