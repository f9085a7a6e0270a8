"""One file per family of foreign models, named by the `model_type` of its config.json."""
