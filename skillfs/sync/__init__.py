"""Keeps what is known in step with the bytes."""
