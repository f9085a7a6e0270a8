"""One file per verb: each parses, calls and prints."""
