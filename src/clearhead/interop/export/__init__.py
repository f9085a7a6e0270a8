"""One file per format that a model can be exported to."""
