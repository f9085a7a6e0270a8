"""The views in a real browser."""
