"""Three steps whose backward runs functions of Python on gradients that autograd adds up: a collective's, as tensor parallelism has them, and
one that makes small tensors. Says what was asked of the allocator."""
import os

import torch
import torch.distributed as distributed

CARD = "cuda"


class Reduced(torch.autograd.Function):
    """As a layer that is cut by columns: its input's gradient is the sum of all ranks'."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        distributed.all_reduce(gradient)
        return gradient


class Scaled(torch.autograd.Function):
    """Its gradients come of tensors that it fills, and of one that it changes in place."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, gradient):
        x, scale = ctx.saved_tensors
        of_x, of_scale = torch.zeros_like(x), torch.ones_like(scale)
        of_x.addcmul_(gradient, scale)
        of_scale.mul_((gradient * x).sum((0, 1)))
        return of_x, of_scale


class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.parts = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(3))
        self.scale = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        x = self.norm(x)
        x = sum(part(Reduced.apply(x)) for part in self.parts)
        return sum(Scaled.apply(x, self.scale) for _ in range(3)).relu()


def main():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    store = distributed.HashStore()
    distributed.init_process_group("nccl", rank=0, world_size=1, store=store)
    model = torch.nn.Sequential(Layer(64), Layer(64), torch.nn.Linear(64, 8)).to(CARD)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        with torch.autocast(CARD, torch.bfloat16):
            loss = model(torch.randn(4, 64, 64, device=CARD)).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    stats = torch.cuda.memory_stats()
    asked = [stats[f"{what}.all.{how}"] for what, how in (("allocation", "allocated"), ("requested_bytes", "allocated"), ("allocated_bytes", "peak"))]
    print("asked:", *asked, flush=True)
    distributed.destroy_process_group()


main()
