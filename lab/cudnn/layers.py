"""Layers of convolution nets as (x [C, spatial...], weight [K, C/g, window...], padding, stride, dilation, groups) of the forward graph; transposed ones the other way round."""
import json, sys, warnings
warnings.filterwarnings("ignore")
import torch
from torch import nn
def layers(model, x):
    out = []
    def hook(m, i, o):
        x, y = (i[0], o) if not m.transposed else (o, i[0])
        pad = m.padding if not isinstance(m.padding, str) else [d * (k - 1) // 2 if m.padding == "same" else 0 for k, d in zip(m.kernel_size, m.dilation)]
        def s(t): return list(t.shape[1:]) if t.dim() - 2 == len(m.kernel_size) else list(t.shape)
        out.append((s(x), list(m.weight.shape), list(pad), list(m.stride), list(m.dilation), m.groups, s(y)))
    for m in model.modules():
        if isinstance(m, nn.modules.conv._ConvNd): m.register_forward_hook(hook)
    with torch.no_grad(): model.eval()(x)
    return out
def net(name, make, size):
    try:
        with torch.device("meta"): return name, layers(make(), torch.empty(1, *size))
    except Exception as e:
        print("skip", name, str(e)[:80], file=sys.stderr); return name, []
class Unet(nn.Module):
    def __init__(s, c, widths, n=2):
        super().__init__(); C, T = [None, nn.Conv1d, nn.Conv2d, nn.Conv3d][n], [None, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d][n]
        P = [None, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d][n]
        s.d, s.u, s.t, s.p = nn.ModuleList(), nn.ModuleList(), nn.ModuleList(), P(2)
        for w in widths: s.d.append(nn.Sequential(C(c, w, 3, padding=1), C(w, w, 3, padding=1))); c = w
        for w in widths[-2::-1]: s.t.append(T(c, w, 2, stride=2)); s.u.append(nn.Sequential(C(2 * w, w, 3, padding=1), C(w, w, 3, padding=1))); c = w
        s.o = C(c, 2, 1)
    def forward(s, x):
        k = []
        for i, d in enumerate(s.d):
            if i: x = s.p(x)
            x = d(x); k.append(x)
        for t, u, h in zip(s.t, s.u, k[-2::-1]): x = u(torch.cat([h, t(x)], 1))
        return s.o(x)
def stack(C, chain, **kw):
    ms = []
    for a, b, k, st, p in chain: ms.append(C(a, b, k, stride=st, padding=p, **kw))
    return nn.Sequential(*ms)
def gan(z=100, g=64): return stack(nn.ConvTranspose2d, [(z, 8*g, 4, 1, 0), (8*g, 4*g, 4, 2, 1), (4*g, 2*g, 4, 2, 1), (2*g, g, 4, 2, 1), (g, 3, 4, 2, 1)], bias=False)
def dis(d=64): return stack(nn.Conv2d, [(3, d, 4, 2, 1), (d, 2*d, 4, 2, 1), (2*d, 4*d, 4, 2, 1), (4*d, 8*d, 4, 2, 1), (8*d, 1, 4, 1, 0)], bias=False)
def w2v(): return stack(nn.Conv1d, [(1, 512, 10, 5, 0)] + [(512, 512, 3, 2, 0)] * 4 + [(512, 512, 2, 2, 0)] * 2)
def sd(ch=(320, 640, 1280, 1280)):
    ms, c = [], 4
    for i, w in enumerate(ch):
        ms += [nn.Conv2d(c, w, 3, padding=1), nn.Conv2d(w, w, 3, padding=1), nn.Conv2d(w, w, 1)] + ([nn.Conv2d(w, w, 3, stride=2, padding=1)] if i < 3 else []); c = w
    for i, w in enumerate(ch[::-1]): ms += [nn.Conv2d(c, 2 * w, 1), nn.Conv2d(2 * w, w, 3, padding=1)] + ([nn.Upsample(scale_factor=2), nn.Conv2d(w, w, 3, padding=1)] if i < 3 else []); c = w
    return nn.Sequential(*ms, nn.Conv2d(c, 4, 3, padding=1))
def small(cs=(3, 32, 64, 128), k=3, p=1): return nn.Sequential(*[m for a, b in zip(cs, cs[1:]) for m in (nn.Conv2d(a, b, k, padding=p), nn.MaxPool2d(2))])
def all_nets():
    import torchvision.models as tv
    out = [net("resnet50", tv.resnet50, (3, 224, 224)), net("resnet18", tv.resnet18, (3, 224, 224)), net("resnet152", tv.resnet152, (3, 224, 224)), net("dcgan g", gan, (100, 1, 1)), net("dcgan d", dis, (3, 64, 64)), net("dcgan g8", lambda: gan(100, 8), (100, 1, 1)), net("dcgan d8", lambda: dis(8), (3, 64, 64)),
           net("resnet18 32", tv.resnet18, (3, 32, 32)), net("resnet50 64", tv.resnet50, (3, 64, 64)), net("resnet50 32", tv.resnet50, (3, 32, 32)), net("vgg16", tv.vgg16, (3, 224, 224)), net("vgg 32", lambda: tv.vgg11().features, (3, 32, 32)), net("unet", lambda: Unet(3, [64, 128, 256, 512, 1024]), (3, 256, 256)), net("unet 512", lambda: Unet(1, [32, 64, 128, 256, 512]), (1, 512, 512)), net("unet 128", lambda: Unet(3, [64, 128, 256, 512]), (3, 128, 128)),
           net("sd", sd, (4, 64, 64)), net("sd 32", lambda: sd((128, 256, 256, 512)), (4, 32, 32)), net("ddpm", lambda: sd((64, 128, 256, 512)), (4, 64, 64)), net("convnext_tiny", tv.convnext_tiny, (3, 224, 224)), net("mnist", lambda: small((1, 32, 64)), (1, 28, 28)), net("mnist0", lambda: small((1, 32, 64), 3, 0), (1, 28, 28)), net("lenet", lambda: small((1, 6, 16), 5, 0), (1, 28, 28)), net("cifar", small, (3, 32, 32)), net("cifar0", lambda: small((3, 6, 16), 5, 0), (3, 32, 32)), net("cifar w", lambda: small((3, 64, 128, 256)), (3, 32, 32)),
           net("w2v", w2v, (1, 16000)), net("w2v 4s", w2v, (1, 64000)), net("whisper", lambda: stack(nn.Conv1d, [(80, 384, 3, 1, 1), (384, 384, 3, 2, 1)]), (80, 3000)), net("tcn", lambda: stack(nn.Conv1d, [(1, 64, 7, 2, 3), (64, 64, 3, 1, 1), (64, 128, 3, 2, 1), (128, 256, 3, 2, 1)]), (1, 1024)), net("tcn512", lambda: stack(nn.Conv1d, [(16, 32, 3, 1, 1), (32, 64, 3, 1, 1), (64, 128, 5, 1, 2)]), (16, 512)), net("unet3d", lambda: Unet(1, [32, 64, 128, 256], 3), (1, 64, 64, 64)), net("unet3d 96", lambda: Unet(4, [16, 32, 64, 128, 256], 3), (4, 96, 96, 96)), net("unet1d", lambda: Unet(2, [64, 128, 256, 512], 1), (2, 1024))]
    for n in ("mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "densenet121", "googlenet", "alexnet", "resnext50_32x4d", "wide_resnet50_2", "regnet_y_400mf", "shufflenet_v2_x1_0", "squeezenet1_0", "mnasnet1_0", "convnext_base", "efficientnet_v2_s", "resnet34", "resnet101", "vgg19_bn"):
        out.append(net(n, getattr(tv, n), (3, 224, 224)))
    out.append(net("inception_v3", tv.inception_v3, (3, 299, 299)))
    out += [net(n, getattr(tv.video, n), (3, 16, 112, 112)) for n in ("r3d_18", "mc3_18", "r2plus1d_18")]
    out += [net("deeplab", lambda: tv.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None), (3, 256, 256)), net("fcn", lambda: tv.segmentation.fcn_resnet50(weights=None, weights_backbone=None), (3, 256, 256)), net("resnet50 320", tv.resnet50, (3, 320, 320)), net("resnet18 128", tv.resnet18, (3, 128, 128)), net("resnet18 64", tv.resnet18, (3, 64, 64))]
    try:
        import timm
        for n in ("vit_base_patch16_224", "vit_small_patch8_224", "vit_large_patch14_224", "swin_tiny_patch4_window7_224", "convnextv2_tiny", "resnetv2_50", "darknet53", "hrnet_w18", "nfnet_f0", "coatnet_0_rw_224", "mixnet_s", "ghostnet_100", "resnest50d", "dla34", "repvgg_a2", "cspdarknet53", "xception41", "pvt_v2_b1", "mobilevit_s", "poolformer_s12", "efficientformer_l1", "rexnet_100", "dpn68", "ese_vovnet39b"):
            out.append(net(n, lambda n=n: timm.create_model(n), (3, 224, 224)))
    except ImportError: pass
    return out
class Cifar(nn.Module):
    """ResNets for images of 32 pixels: no stem. `widths` with so many blocks each."""
    def __init__(s, widths, blocks, bottleneck=False):
        super().__init__(); ms, c = [nn.Conv2d(3, widths[0], 3, padding=1)], widths[0]
        for i, w in enumerate(widths):
            for b in range(blocks):
                st = 2 if i and not b else 1; ms.append(_Block(c, w, st, bottleneck)); c = w * (4 if bottleneck else 1)
        s.f = nn.Sequential(*ms)
    def forward(s, x): return s.f(x)
class _Block(nn.Module):
    def __init__(s, c, w, st, bottleneck):
        super().__init__(); o = w * (4 if bottleneck else 1)
        s.f = nn.Sequential(nn.Conv2d(c, w, 1), nn.Conv2d(w, w, 3, st, 1), nn.Conv2d(w, o, 1)) if bottleneck else nn.Sequential(nn.Conv2d(c, w, 3, st, 1), nn.Conv2d(w, w, 3, 1, 1))
        s.k = nn.Conv2d(c, o, 1, st) if st > 1 or c != o else nn.Identity()
    def forward(s, x): return s.f(x) + s.k(x)
def patches(width, patch): return lambda: nn.Sequential(nn.Conv2d(3, width, patch, patch))
def autoencoder(c, widths): return nn.Sequential(*[nn.Conv2d(a, b, k, 2, 1) for k in (4,) for a, b in zip((c, *widths), widths)], *[nn.ConvTranspose2d(a, b, 4, 2, 1) for a, b in zip(widths[::-1], (*widths[-2::-1], c))])
def core_nets():
    """Nets that people train most, as they are usually cut."""
    import torchvision.models as tv
    out = [net(n, getattr(tv, n), (3, 224, 224)) for n in ("resnet18", "resnet34", "resnet50", "resnet101", "vgg16", "densenet121", "mobilenet_v2", "efficientnet_b0", "convnext_tiny")]
    out += [net("cifar18", lambda: Cifar((64, 128, 256, 512), 2), (3, 32, 32)), net("resnet18 32", tv.resnet18, (3, 32, 32)), net("cifar", small, (3, 32, 32)), net("mnist", lambda: small((1, 32, 64)), (1, 28, 28)), net("mnist0", lambda: small((1, 32, 64), 3, 0), (1, 28, 28))]
    out += [net("unet", lambda: Unet(3, [64, 128, 256, 512, 1024]), (3, 256, 256)), net("dcgan g", gan, (100, 1, 1)), net("dcgan d", dis, (3, 64, 64))]
    return out + [net("patches", patches(w, p), (3, 224, 224)) for w, p in ((768, 16), (384, 16), (192, 16), (1024, 16), (1024, 14), (768, 32))]
def common_nets():
    """More of them, and at other sizes of images."""
    import torchvision.models as tv
    sized = [("resnet18", (96, 256)), ("resnet34", (32, 64, 128)), ("resnet50", (96, 128, 160, 192, 256)), ("resnet101", (256,)), ("vgg16", (32, 64)), ("vgg11", (224,)), ("vgg13", (224,)), ("densenet121", (32, 64, 128)), ("densenet169", (224,)), ("mobilenet_v2", (32, 64, 128)), ("mobilenet_v3_small", (224,)), ("efficientnet_b0", (32, 64, 128, 256)), ("efficientnet_b3", (300,)), ("convnext_tiny", (64, 128, 256)), ("convnext_small", (224,)), ("convnext_large", (224,)), ("wide_resnet50_2", (64,)), ("regnet_y_8gf", (224,))]
    out = [net(n, getattr(tv, n), (3, s, s)) for n, sizes in sized for s in sizes]
    out += [net("cifar18", lambda: Cifar((64, 128, 256, 512), 2), (3, s, s)) for s in (32, 64)] + [net("cifar50", lambda: Cifar((64, 128, 256, 512), 2, True), (3, 32, 32)), net("resnet20", lambda: Cifar((16, 32, 64), 2), (3, 32, 32)), net("wrn", lambda: Cifar((160, 320, 640), 2), (3, 32, 32))]
    out += [net("unet", lambda c=c: Unet(c, [64, 128, 256, 512, 1024]), (c, s, s)) for c in (1, 3) for s in (128, 512)] + [net("unet s", lambda c=c: Unet(c, [32, 64, 128, 256]), (c, s, s)) for c in (1, 3) for s in (128, 256)]
    out += [net("sd", sd, (4, s, s)) for s in (32, 96)] + [net("ddpm", lambda: sd((128, 256, 256, 512)), (4, s, s)) for s in (32, 64)] + [net("ddpm", lambda: sd((64, 128, 256, 512)), (4, s, s)) for s in (32, 64)]
    out += [net("autoencoder", lambda c=c: autoencoder(c, (32, 64, 128, 256)), (c, s, s)) for c, s in ((1, 32), (3, 32), (3, 64), (3, 128), (3, 256))]
    return out + [net("patches", patches(w, p), (3, s, s)) for w, p, s in ((768, 16, 384), (1024, 16, 384), (1152, 14, 224), (1280, 14, 224), (96, 4, 224), (128, 4, 224), (192, 4, 32), (384, 4, 32), (512, 4, 32), (64, 4, 32))]
# What is written, and the batches that are asked for: none says those of record.py.
SETS = {"all": (all_nets, None), "core": (core_nets, [3, 6, 10, 12, 20, 24, 48, 96, 100, 192, 512]), "common": (common_nets, [8, 16, 32, 64, 128, 256])}
if __name__ == "__main__":
    seen, res = set(), []
    nets, batches = SETS[sys.argv[2] if len(sys.argv) > 2 else "all"]
    for name, ls in nets():
        for l in ls:
            k = json.dumps(l)
            if k not in seen: seen.add(k); res.append(l)
    json.dump({"batches": batches, "layers": res} if batches else res, open(sys.argv[1], "w")); print(len(res), "layers", file=sys.stderr)
