"""Traces of training steps: what an operation is part of, all ranks in one, who waited for whom."""
