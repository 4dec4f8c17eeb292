"""What is known about a store."""
