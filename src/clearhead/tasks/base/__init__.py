"""What tasks are made of: the bases of tasks and predictors, losses, metrics."""
