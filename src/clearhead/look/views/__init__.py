"""One view = one file, named like the view: its analysis, its JSON, its figure and its terminal output."""
