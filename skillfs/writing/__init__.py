"""How stores are written to: rules, batches, and files that are not there yet."""
