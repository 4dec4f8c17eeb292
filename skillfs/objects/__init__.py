"""What is kept by its content: objects, and the snapshots that are made of them."""
