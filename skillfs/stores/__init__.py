"""Where the bytes lie."""
