"""Pure rules: references, text, front matter, formats, identities. No I/O and no clock."""
