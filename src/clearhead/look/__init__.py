"""Looking inside: what a model computes on the way to its answer."""
