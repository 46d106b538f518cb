"""Trains one of `models.py` on several ranks as rows of tests/data were measured; each rank writes its figures.

    torchrun --nproc-per-node 2 ranks.py '{"mode": "ddp", "workload": "gpt2", "amp": "bf16", "accum": 1, "batch": 16, "steps": 8}' FOLDER

Modes
    ddp          DistributedDataParallel, its defaults (buckets of 25 MiB, the first of 1 MiB; gradients copied into buckets)
    ddp-view     the same with gradient_as_bucket_view=True
    zero1        DDP with ZeroRedundancyOptimizer(AdamW): each rank holds the state of its share of the parameters
    fsdp         fully_shard (FSDP2) on every block and on the root; bf16: parameters gathered in bf16, gradients reduced in fp32
    zero2        the same with reshard_after_forward=False
    tp           Megatron-style tensor parallel: heads and MLP columns split, one all-reduce behind each pair in forward and in backward
    pp-gpipe, pp-1f1b   torch.distributed.pipelining, one stage a rank, 4 micro-batches

Data-parallel modes: at step s rank r takes batch number (s * world + r) % 4 with batch / world samples. tp and pp: every rank works on
batch number s % 4.
"""
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

import models as M


class Copy(torch.autograd.Function):
    """Identity forward, all-reduce backward."""
    @staticmethod
    def forward(ctx, x): return x
    @staticmethod
    def backward(ctx, g):
        g = g.contiguous().clone(); dist.all_reduce(g); return g


class Reduce(torch.autograd.Function):
    """All-reduce forward, identity backward."""
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone(); dist.all_reduce(x); return x
    @staticmethod
    def backward(ctx, g): return g


def tensor_parallel(model, rank, world):
    for b in model.blocks:
        d, h = b.qkv.weight.shape[1], b.heads // world
        hd = d // b.heads
        take = lambda t: t.view(3, b.heads, hd, *t.shape[1:])[:, rank * h:(rank + 1) * h].reshape(3 * h * hd, *t.shape[1:]).clone()
        rows = lambda t: t.chunk(world, 0)[rank].clone()
        cols = lambda t: t.chunk(world, 1)[rank].contiguous().clone()
        with torch.no_grad():
            b.qkv.weight, b.qkv.bias = nn.Parameter(take(b.qkv.weight)), nn.Parameter(take(b.qkv.bias))
            b.fc.weight, b.fc.bias = nn.Parameter(rows(b.fc.weight)), nn.Parameter(rows(b.fc.bias))
            b.proj.weight, b.out.weight = nn.Parameter(cols(b.proj.weight)), nn.Parameter(cols(b.out.weight))

        def attn(x, b=b, h=h, hd=hd):
            x = Copy.apply(x); n, t, _ = x.shape
            q, k, v = (y.view(n, t, h, hd).transpose(1, 2) for y in b.qkv(x).split(h * hd, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=b.causal).transpose(1, 2).contiguous().view(n, t, h * hd)
            return Reduce.apply(F.linear(y, b.proj.weight)) + b.proj.bias

        def mlp(x, b=b):
            return Reduce.apply(F.linear(F.gelu(b.fc(Copy.apply(x)), approximate=b.approx), b.out.weight)) + b.out.bias
        b.attn, b.mlp = attn, mlp
    return model


class Stage(nn.Module):
    """The first or the second half of a Gpt."""
    def __init__(self, model, rank, world):
        super().__init__()
        n = len(model.blocks) // world
        self.blocks = nn.ModuleList(list(model.blocks)[rank * n:(rank + 1) * n])
        self.first, self.last = rank == 0, rank == world - 1
        if self.first: self.wte, self.wpe = model.wte, model.wpe
        if self.last: self.ln_f, self.head = model.ln_f, nn.Linear(model.wte.weight.shape[1], model.wte.weight.shape[0], bias=False, device="cuda"); self.head.weight = nn.Parameter(model.wte.weight.detach().clone())

    def forward(self, x):
        if self.first: x = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
        for b in self.blocks: x = b(x)
        return self.head(self.ln_f(x)) if self.last else x


def main(mode, workload, amp, accum, batch, steps, folder):
    rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank); torch.cuda.init()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    dtype = torch.bfloat16 if amp else None
    make, kind, _, side = M.WORKLOADS[workload]
    model = make().to("cuda"); M.init_(model, model.transformer)
    classes = model.wte.weight.shape[0] if kind == "token" else model.head.weight.shape[0]
    split = mode in ("ddp", "ddp-view", "zero1", "fsdp", "zero2"); per = batch // world if split else batch

    def batch_of(number):
        n = per // accum
        if kind == "token": return M.tokens(number, n, side, classes, "cuda")
        return M.images(number, (n, 3, side, side), "cuda"), M.labels(number, n, classes, "cuda")

    data = [batch_of((b * world + rank) % 4 if split else b) for b in range(4)]
    net, stage = model, None
    if mode in ("ddp", "ddp-view", "zero1"): net = nn.parallel.DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=mode == "ddp-view")
    if mode in ("fsdp", "zero2"):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        kw = {"mp_policy": MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)} if dtype else {}
        for b in model.blocks: fully_shard(b, reshard_after_forward=mode == "fsdp", **kw)
        fully_shard(model, reshard_after_forward=mode == "fsdp", **kw)
    if mode == "tp": net = tensor_parallel(model, rank, world)
    if mode.startswith("pp"):
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
        net = Stage(model, rank, world); del model
        loss_fn = lambda o, y: F.cross_entropy(o.reshape(-1, o.shape[-1]), y.reshape(-1))
        stage = (Schedule1F1B if mode == "pp-1f1b" else ScheduleGPipe)(PipelineStage(net, rank, world, torch.device("cuda", rank)), 4, loss_fn=loss_fn)
    params = list(net.parameters())
    adamw = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
    if mode == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        opt = ZeroRedundancyOptimizer(params, torch.optim.AdamW, **adamw)
    else: opt = torch.optim.AdamW(params, **adamw)
    dist.barrier(); torch.cuda.synchronize(); torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()
    auto = lambda: torch.autocast("cuda", dtype=dtype, enabled=dtype is not None and mode not in ("fsdp", "zero2"))
    for s in range(steps):
        torch.cuda.synchronize(); total = 0.0
        if stage:
            x, y = data[s % 4]; ls = []
            with auto(): stage.step(x) if rank == 0 else stage.step(target=y, losses=ls)
            total = sum(float(v) for v in ls) / max(len(ls), 1); ls.clear()
        else:
            for m in range(accum):
                x, y = data[(s * accum + m) % 4]
                if accum > 1 and hasattr(net, "no_sync"): net.require_backward_grad_sync = m == accum - 1
                with auto(): o = net(x); loss = F.cross_entropy(o.float().view(-1, o.shape[-1]) if mode in ("fsdp", "zero2") else o.view(-1, o.shape[-1]), y.view(-1)) / accum
                loss.backward(); total = total + loss.detach(); del o, loss
        opt.step(); opt.zero_grad(set_to_none=True)
        float(total); torch.cuda.synchronize()
    figures = {"peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved(),
               "allocations": torch.cuda.memory_stats()["allocation.all.allocated"]}
    with open(os.path.join(folder, f"rank{rank}.json"), "w") as file: json.dump(figures, file)
    dist.barrier(); dist.destroy_process_group()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]), folder=sys.argv[2])
