"""What every test shares: one thread, and the same random examples in every run."""

import torch
from hypothesis import settings

settings.register_profile("clearhead", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("clearhead")
torch.set_num_threads(1)
