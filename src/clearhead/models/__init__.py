"""Systems assembled from the parts in `nn`."""
