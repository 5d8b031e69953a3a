"""Saving and resuming: Keras's files, sharded checkpoints, SavedModel."""
