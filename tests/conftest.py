"""One thread of torch in the tests' own process, so that it can fork children that compute."""

import torch

# before any test module is imported: what those compute as they are collected must not start a pool of threads either
torch.set_num_threads(1)
