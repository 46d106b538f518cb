"""Trains one of `models.py` as a row of tests/data was measured, and prints the figures of a row.

    python train.py '{"workload": "gpt2", "amp": "bf16", "ckpt": false, "accum": 1, "opt": "adamw", "tf32": false, "batch": 16, "steps": 12}'

Figures are torch.cuda's own: allocated before the steps and at the four boundaries of the last one, peaks, and what is reserved.
"""
import json
import sys

import torch
import torch.nn.functional as F

import models as M

ROW = json.loads(sys.argv[1])
DTYPE = {"fp16": torch.float16, "bf16": torch.bfloat16, None: None}[ROW["amp"]]
GAN = ROW["workload"].startswith("dcgan")
allocated = torch.cuda.memory_allocated
marks = {}


def optimizer(model):
    if ROW["opt"] == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def autocast():
    return torch.autocast("cuda", dtype=DTYPE, enabled=DTYPE is not None)


def classifier(make, kind, side, scaler):
    """A model with one loss: tokens, rows or images."""
    model = make().cuda()
    M.init_(model, model.transformer)
    model.ckpt = ROW["ckpt"]
    optim, n = optimizer(model), ROW["batch"] // ROW["accum"]
    classes = model.head.weight.shape[0]

    def batch(number):
        if kind == "token":
            return M.tokens(number, n, side, model.wte.weight.shape[0], "cuda")
        shape = (n, side) if kind == "vector" else (n, 3, side, side)
        return M.images(number, shape, "cuda"), M.labels(number, n, classes, "cuda")

    data = [batch(number) for number in range(4)]

    def step(number):
        total = 0.0
        for micro in range(ROW["accum"]):
            x, y = data[(number * ROW["accum"] + micro) % 4]
            with autocast():
                logits = model(x)
                loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1)) / ROW["accum"]
            marks["forward"] = allocated()
            scaler.scale(loss).backward()
            total = total + loss.detach()
            del logits, loss
        marks["backward"] = allocated()
        scaler.step(optim)
        scaler.update()
        marks["optimizer"] = allocated()
        optim.zero_grad(set_to_none=True)
        marks["zero_grad"] = allocated()
        return total

    return step


def gan(scaler):
    """Two models that learn in turns."""
    small = ROW["workload"].endswith("mini")
    gen, dis = M.dcgan(g=8, d=8) if small else M.dcgan()
    gen, dis = M.init_(gen.cuda(), False), M.init_(dis.cuda(), False)
    of_gen, of_dis = optimizer(gen), optimizer(dis)
    bce, n = F.binary_cross_entropy_with_logits, ROW["batch"]

    def noise(number):
        return (2 * M.unit(5000 + number, n * 100, "cuda") - 1).float().view(n, 100, 1, 1)

    data = [(M.images(number, (n, 3, 64, 64), "cuda"), noise(number)) for number in range(4)]

    def against(out, target):
        return bce(out.float(), target(out, dtype=torch.float))

    def step(number):
        real, z = data[number % 4]
        with autocast():
            fake = gen(z)
            out_r, out_f = dis(real).view(-1), dis(fake.detach()).view(-1)
            loss_d = against(out_r, torch.ones_like) + against(out_f, torch.zeros_like)
        marks["forward"] = allocated()
        scaler.scale(loss_d).backward()
        scaler.step(of_dis)
        of_dis.zero_grad(set_to_none=True)
        with autocast():
            out = dis(fake).view(-1)
            loss_g = against(out, torch.ones_like)
        scaler.scale(loss_g).backward()
        marks["backward"] = allocated()
        scaler.step(of_gen)
        scaler.update()
        marks["optimizer"] = allocated()
        of_gen.zero_grad(set_to_none=True)
        of_dis.zero_grad(set_to_none=True)
        total = loss_d.detach() + loss_g.detach()
        del fake, out_r, out_f, loss_d, out, loss_g
        marks["zero_grad"] = allocated()
        return total

    return step


torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = ROW["tf32"]
scaler = torch.amp.GradScaler("cuda", enabled=ROW["amp"] == "fp16")
make, kind, _, side = M.WORKLOADS[ROW["workload"]]
step = gan(scaler) if GAN else classifier(make, kind, side, scaler)
before = allocated()
torch.cuda.synchronize()
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
losses = []
for number in range(ROW["steps"]):
    total = None
    total = step(number)
    losses.append(float(total))
stats = torch.cuda.memory_stats()
print(json.dumps({
    "allocated_before_step": before, "allocated_after": marks,
    "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved(),
    "reserved": torch.cuda.memory_reserved(), "inactive_split": stats["inactive_split_bytes.all.current"],
    "segments": stats["segment.all.current"], "allocations": stats["allocation.all.allocated"]}))
