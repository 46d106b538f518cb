"""Reference workloads in plain PyTorch.

The rows of tests/data were measured on these definitions. Weights and data come from
an integer hash instead of a random generator, so that any other program can rebuild
the same numbers bit for bit:

    lowbias32(x): x ^= x >> 16; x *= 0x7feb352d; x ^= x >> 15; x *= 0x846ca68b; x ^= x >> 16   (mod 2^32)
    unit(seed, i) = lowbias32((i + seed * 0x9E3779B9) mod 2^32) / 2^32        in [0, 1)

Parameter number p (from 0, in the order of named_parameters, tied ones once), flat index i:
    bias                     -> 0
    1-D weight (a norm)      -> 1
    transformer weights      -> (2 * unit(1000 + p, i) - 1) * 0.02 * sqrt(3)
    all other weights        -> (2 * unit(1000 + p, i) - 1) * sqrt(3 / fan_in),  fan_in = numel / shape[0]
Batch number b (step % 4):
    images, flat index i     -> 2 * unit(2000 + b, i) - 1
    labels, index i          -> floor(unit(3000 + b, i) * classes)
    tokens [B, T+1], index i -> floor(unit(4000 + b, i) * vocab);  input = [:, :-1], target = [:, 1:]
    GAN noise, flat index i  -> 2 * unit(5000 + b, i) - 1
All are computed in float64 and then rounded to float32.
"""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

M32 = 0xFFFFFFFF


def unit(seed, n, device):
    x = (torch.arange(n, device=device, dtype=torch.int64) + (seed * 0x9E3779B9 & M32)) & M32
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & M32
    x = x ^ (x >> 15)
    x = (x * 0x846CA68B) & M32
    x = x ^ (x >> 16)
    return x.to(torch.float64) / 2.0**32


def init_(model, transformer):
    with torch.no_grad():
        for p, (name, t) in enumerate(model.named_parameters()):
            if name.endswith("bias"):
                t.zero_()
            elif t.dim() == 1:
                t.fill_(1.0)
            else:
                a = 0.02 * math.sqrt(3) if transformer else math.sqrt(3 / (t.numel() // t.shape[0]))
                t.copy_(((2 * unit(1000 + p, t.numel(), t.device) - 1) * a).view(t.shape))
    return model


def images(b, shape, device):
    n = math.prod(shape)
    return (2 * unit(2000 + b, n, device) - 1).to(torch.float32).view(shape)


def labels(b, n, classes, device):
    return (unit(3000 + b, n, device) * classes).floor().to(torch.int64)


def tokens(b, batch, t, vocab, device):
    x = (unit(4000 + b, batch * (t + 1), device) * vocab).floor().to(torch.int64).view(batch, t + 1)
    return x[:, :-1].contiguous(), x[:, 1:].contiguous()


class Mlp(nn.Module):
    transformer = False

    def __init__(self, d_in=1024, width=4096, depth=8, classes=1000):
        super().__init__()
        dims = [d_in] + [width] * (depth - 1)
        self.hidden = nn.ModuleList(nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in zip(dims, dims[1:]))
        self.head = nn.Linear(width, classes)
        self.ckpt = False

    def forward(self, x):
        for layer in self.hidden:
            x = checkpoint(layer, x, use_reentrant=False) if self.ckpt else layer(x)
        return self.head(x)


class Block(nn.Module):
    """Pre-norm (GPT, ViT) or post-norm (BERT) transformer block; no dropout."""

    def __init__(self, d, heads, causal, post_norm=False, tanh=True):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.heads, self.causal, self.post, self.approx = heads, causal, post_norm, "tanh" if tanh else "none"

    def attn(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in self.qkv(x).split(d, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).contiguous().view(b, t, d))

    def mlp(self, x):
        return self.out(F.gelu(self.fc(x), approximate=self.approx))

    def forward(self, x):
        if self.post:
            x = self.ln1(x + self.attn(x))
            return self.ln2(x + self.mlp(x))
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Trunk(nn.Module):
    transformer = True

    def run_blocks(self, x):
        for blk in self.blocks:
            x = checkpoint(blk, x, use_reentrant=False) if self.ckpt else blk(x)
        return x


class Gpt(Trunk):
    """GPT-2: learned positions, pre-norm, tied head."""

    def __init__(self, vocab=50257, ctx=1024, d=768, layers=12, heads=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(Block(d, heads, causal=True) for _ in range(layers))
        self.ln_f = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        self.head.weight = self.wte.weight
        self.ckpt = False

    def forward(self, idx):
        pos = torch.arange(idx.shape[1], device=idx.device)
        return self.head(self.ln_f(self.run_blocks(self.wte(idx) + self.wpe(pos))))


class Bert(Trunk):
    """BERT encoder with a tied token head over every position; post-norm, exact GELU."""

    def __init__(self, vocab=30522, ctx=512, d=1024, layers=24, heads=16):
        super().__init__()
        self.wte, self.wpe, self.ln_e = nn.Embedding(vocab, d), nn.Embedding(ctx, d), nn.LayerNorm(d)
        self.blocks = nn.ModuleList(Block(d, heads, causal=False, post_norm=True, tanh=False) for _ in range(layers))
        self.head = nn.Linear(d, vocab, bias=False)
        self.head.weight = self.wte.weight
        self.ckpt = False

    def forward(self, idx):
        pos = torch.arange(idx.shape[1], device=idx.device)
        return self.head(self.run_blocks(self.ln_e(self.wte(idx) + self.wpe(pos))))


class Vit(Trunk):
    """ViT with mean pooling; patches by a strided convolution."""

    def __init__(self, image=224, patch=16, d=768, layers=12, heads=12, classes=1000):
        super().__init__()
        self.patch = nn.Conv2d(3, d, patch, patch)
        self.pos = nn.Parameter(torch.zeros((image // patch) ** 2, d))
        self.blocks = nn.ModuleList(Block(d, heads, causal=False, tanh=False) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(d), nn.Linear(d, classes)
        self.ckpt = False

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        return self.head(self.ln_f(self.run_blocks(x)).mean(1))


class Bottleneck(nn.Module):
    def __init__(self, cin, mid, stride):
        super().__init__()
        cout = mid * 4
        self.c1, self.b1 = nn.Conv2d(cin, mid, 1, bias=False), nn.BatchNorm2d(mid)
        self.c2, self.b2 = nn.Conv2d(mid, mid, 3, stride, 1, bias=False), nn.BatchNorm2d(mid)
        self.c3, self.b3 = nn.Conv2d(mid, cout, 1, bias=False), nn.BatchNorm2d(cout)
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.b1(self.c1(x)), inplace=True)
        y = F.relu(self.b2(self.c2(y)), inplace=True)
        y = self.b3(self.c3(y))
        y += self.down(x) if self.down is not None else x
        return F.relu(y, inplace=True)


class ResNet(nn.Module):
    """ResNet-50 by default; depths (3, 8, 36, 3) makes ResNet-152."""

    transformer = False

    def __init__(self, depths=(3, 4, 6, 3), classes=1000, width=64):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        blocks, cin = [], width
        for i, n in enumerate(depths):
            for j in range(n):
                blocks.append(Bottleneck(cin, width * 2**i, 2 if i > 0 and j == 0 else 1))
                cin = width * 2**i * 4
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(cin, classes)
        self.ckpt = False

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.stem(x)), inplace=True), 3, 2, 1)
        for blk in self.blocks:
            x = checkpoint(blk, x, use_reentrant=False) if self.ckpt else blk(x)
        return self.head(x.mean((2, 3)))


def dcgan(nz=100, g=64, d=64):
    def up(a, b, k, s, p):
        return [nn.ConvTranspose2d(a, b, k, s, p, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)]

    def down(a, b):
        return [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2, True)]

    gen = nn.Sequential(*up(nz, g * 8, 4, 1, 0), *up(g * 8, g * 4, 4, 2, 1), *up(g * 4, g * 2, 4, 2, 1),
                        *up(g * 2, g, 4, 2, 1), nn.ConvTranspose2d(g, 3, 4, 2, 1, bias=False), nn.Tanh())
    dis = nn.Sequential(nn.Conv2d(3, d, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True), *down(d, d * 2),
                        *down(d * 2, d * 4), *down(d * 4, d * 8), nn.Conv2d(d * 8, 1, 4, 1, 0, bias=False))
    return gen, dis


# name: (model factory, kind, full-size batch, sequence length or image side)
WORKLOADS = {
    "mlp": (lambda: Mlp(), "vector", 8192, 1024),
    "resnet50": (lambda: ResNet(), "image", 64, 224),
    "gpt2": (lambda: Gpt(), "token", 16, 1024),
    "bert-large": (lambda: Bert(), "token", 16, 512),
    "vit-b16": (lambda: Vit(), "image", 64, 224),
    "dcgan": (None, "gan", 256, 64),
    # small ones: seconds on a processor, the numerical truth for a test suite
    "mlp-mini": (lambda: Mlp(32, 64, 4, 10), "vector", 16, 32),
    "resnet-mini": (lambda: ResNet((1, 1, 1, 1), 10, 8), "image", 16, 32),
    "gpt-mini": (lambda: Gpt(257, 32, 32, 2, 4), "token", 4, 32),
    "bert-mini": (lambda: Bert(257, 32, 32, 2, 4), "token", 4, 32),
    "vit-mini": (lambda: Vit(32, 8, 32, 2, 4, 10), "image", 4, 32),
    "dcgan-mini": (None, "gan", 4, 64),
}
VARLEN = [512, 64, 384, 128, 480, 96, 256, 32, 448, 160, 320, 224]
