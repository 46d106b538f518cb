"""A training that records for itself from its fifth step to its tenth, and from its fortieth on, with a ring as long as it likes.

argv: a file to write to what its own recordings held, as JSON.
"""

import json
import sys
import time

import torch

torch.cuda.init()
MIB = 1 << 20
optimizer = torch.optim.optimizer.Optimizer()
dumps = []


def dump():
    trace = torch._C._cuda_memorySnapshot(None)["device_traces"][0]
    dumps.append([(entry["action"], entry["size"]) for entry in trace])


def step(count):
    for _ in range(count):
        blocks = [torch._C.take(2 * MIB, 20 + layer) for layer in range(50)]
        for block in reversed(blocks):
            torch._C.give(block)
        optimizer.step()
        time.sleep(0.02)


step(5)
torch.cuda.memory._record_memory_history(max_entries=1_000_000)
step(5)
dump()
torch.cuda.memory._record_memory_history(enabled=None)
step(30)
torch.cuda.memory._record_memory_history(max_entries=6_000)
step(80)
dump()
with open(sys.argv[1], "w") as file:
    json.dump(dumps, file)
