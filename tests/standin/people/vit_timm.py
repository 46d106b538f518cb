"""A ViT of timm: mixed images, averaged weights, layer decay, autocast in bf16, gradient clipping, evaluation."""
import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV2, accuracy

torch.manual_seed(0)
model = timm.create_model("vit_small_patch16_224", pretrained=False, num_classes=100, drop_path_rate=0.1).cuda()
average = ModelEmaV2(model, decay=0.99)
mix = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=100)
optimizer = create_optimizer_v2(model, opt="adamw", lr=5e-4, weight_decay=0.05, layer_decay=0.75)
schedule = CosineLRScheduler(optimizer, t_initial=10)
criterion = SoftTargetCrossEntropy()
for epoch in range(2):
    model.train()
    for step in range(4):
        images, labels = torch.randn(64, 3, 224, 224).cuda(non_blocking=True), torch.randint(0, 100, (64,)).cuda(non_blocking=True)
        images, targets = mix(images, labels)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update(model)
        print(epoch, step, loss.item())
    schedule.step(epoch + 1)
    model.eval()
    with torch.inference_mode():
        labels = torch.randint(0, 100, (128,)).cuda()
        print(accuracy(average.module(torch.randn(128, 3, 224, 224).cuda()), labels, topk=(1, 5)))
