"""Folders that the kernel shows: a filesystem of skills at a mount point, by FUSE."""
