"""Training: one loop for every task, and what it is made of."""
