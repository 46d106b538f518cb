"""Trains nothing: takes and gives blocks as a training would, step by step, and leaks one now and then. EXCHANGE: milliseconds that the
exchanges of a step take. UNTIL: a file before which the steps are not counted.

argv: steps, seconds a step, a file to write the bytes allocated at the end to.
"""

import os
import sys
import time

import torch

steps, pause, path = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
torch.cuda.init()
MIB = 1 << 20
weights = [torch._C.take(4 * MIB, 10) for _ in range(3)]
optimizer = torch.optim.optimizer.Optimizer()
kept = []
step = 0
while step < steps:
    activations = [torch._C.take(2 * MIB, 20 + layer) for layer in range(6)]
    for block in reversed(activations):
        torch._C.give(block)
    if step % 10 == 9:
        kept.append(torch._C.take(2 * MIB, 99))
    for _ in range(2 if "EXCHANGE" in os.environ else 0):
        torch._C.exchange(float(os.environ["EXCHANGE"]) / 2)
    optimizer.step()
    time.sleep(pause)
    step += 0 if "UNTIL" in os.environ and not os.path.exists(os.environ["UNTIL"]) else 1
with open(path, "w") as file:
    file.write(str(torch._C.allocated()))
