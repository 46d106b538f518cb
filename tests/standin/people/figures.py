"""figures.py PROGRAM [ARGUMENTS]: runs a program as it is, then prints what torch.cuda counted of the first GPU, in one line of JSON."""
import json
import os
import runpy
import sys

import torch

sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
runpy.run_path(sys.argv[0], run_name="__main__")
torch.cuda.synchronize()
told = torch.cuda.memory_stats()
print(json.dumps({
    "peak_allocated": told["allocated_bytes.all.peak"],
    "peak_reserved": told["reserved_bytes.all.peak"],
    "requests": told["allocation.all.allocated"],
    "segments": told["segment.all.allocated"],
}))
