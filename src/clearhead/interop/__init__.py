"""Other people's models: read in any format, turned into a run directory, proven equal."""
