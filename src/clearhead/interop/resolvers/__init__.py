"""What makes a run directory of a path that is none, for `clearhead.run.find`."""
