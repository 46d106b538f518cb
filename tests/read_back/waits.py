"""Waits for a flag that only a card could set."""
import torch

numbers = torch.ones(8, 8, device="cuda")
while (numbers @ numbers).sum().item() == 0:
    numbers = numbers + 1
