"""What one can do with contents: digests, snapshots, differences, locks and versions."""
