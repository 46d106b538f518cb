"""single_ops.py: what single ops of PyTorch, forward and backward, have allocated at most, in MB of 2**20 bytes: `op size MB` a line.

The ops, their sizes and what lies beside them are those of Liger-Kernel's benchmarks, the side that is not Liger's."""
import sys

import torch
from torch import nn
from torch.nn import functional as F

BF16 = {"device": "cuda", "dtype": torch.bfloat16}
ROWS = 8 * 2048


def peak(step):
    """Of a step behind others: the gradients are there, and so are the workspaces of the products."""
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        step()
    return torch.cuda.max_memory_allocated() / 2**20


def leaf(*shape, **kind):
    return torch.randn(*shape, requires_grad=True, **(kind or {"device": "cuda"}))


def cross_entropy(vocabulary):
    logits, labels = leaf(ROWS, vocabulary), torch.randint(vocabulary, (ROWS,), device="cuda")
    return peak(lambda: F.cross_entropy(logits, labels).backward())


def norm(layer, x):
    grad = torch.randn_like(x)
    return peak(lambda: layer(x).backward(grad, retain_graph=True))


def layer_norm(width):
    layer, _beside = (nn.LayerNorm(width, eps=1e-6, device="cuda") for _ in range(2))
    return norm(layer, leaf(4096, width))


class RMSNorm(nn.Module):
    """As Llama has it: in fp32, and its weight too."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        kind, x = x.dtype, x.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(kind)


def rms_norm(width):
    layer, _beside = (RMSNorm(width).cuda() for _ in range(2))
    return norm(layer, leaf(2048, width, **BF16))


def kl_div(vocabulary):
    log_q = leaf(ROWS, vocabulary).log_softmax(dim=-1)
    p = torch.randn(ROWS, vocabulary, device="cuda").softmax(dim=-1)
    return peak(lambda: F.kl_div(log_q, p, reduction="batchmean").backward(retain_graph=True))


def jsd(vocabulary):
    log_q = leaf(ROWS // 2, vocabulary).log_softmax(dim=-1)
    log_p = torch.randn(ROWS // 2, vocabulary, device="cuda").log_softmax(dim=-1)

    def divergence():
        m = torch.lerp(torch.exp(log_q), torch.exp(log_p), 0.5)
        to_m = lambda log: 0.5 * F.kl_div(torch.log(m), log, reduction="none", log_target=True).sum(dim=-1)
        return ((to_m(log_p) + to_m(log_q)) / ROWS).sum()

    return peak(lambda: divergence().backward(retain_graph=True))


def gated(samples, activation, length):
    gate, up = (nn.Linear(4096, 11008, bias=False, **BF16) for _ in range(2))
    down = nn.Linear(11008, 4096, bias=False, **BF16)
    x = leaf(samples, length, 4096, **BF16)

    def step():
        y = down(activation(gate(x)) * up(x))
        y.backward(torch.randn_like(y), retain_graph=True)

    return peak(step)


def swiglu(length):
    return gated(4, F.silu, length)


def geglu(length):
    return gated(8, lambda x: F.gelu(x, approximate="tanh"), length)


def embedding(samples, length, width, vocabulary):
    table, _beside = (nn.Embedding(vocabulary, width, device="cuda") for _ in range(2))
    tokens = torch.randint(vocabulary, (samples, length), device="cuda")

    def step():
        y = table(tokens)
        y.backward(torch.randn_like(y))

    return peak(step)


def embedding_768(vocabulary):
    return embedding(32, 512, 768, vocabulary)


def embedding_4096(vocabulary):
    return embedding(8, 2048, 4096, vocabulary)


def linear_cross_entropy(tokens):
    head, _beside = (nn.Linear(4096, 128256, bias=False, **BF16) for _ in range(2))
    x, labels = leaf(tokens, 4096, **BF16), torch.randint(128256, (tokens,), device="cuda")
    return peak(lambda: F.cross_entropy(head(x), labels).backward())


# Those without a product first: workspaces stay.
for line in sys.stdin:
    op, size = line.split()
    print(op, size, globals()[op](int(size)), flush=True)
    torch.cuda.empty_cache()
