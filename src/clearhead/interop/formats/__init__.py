"""One file per format of foreign model files; each registers a `Format` under its own name."""
