"""torchvision's Faster R-CNN on images of several sizes with a few boxes each, then detection."""
import torch
from torchvision.models.detection import fasterrcnn_resnet50_fpn

torch.manual_seed(0)
chance = torch.Generator().manual_seed(3)


def sample():
    height, width = (int(n) for n in torch.randint(300, 640, (2,), generator=chance))
    count = int(torch.randint(1, 8, (1,), generator=chance))
    corner = torch.rand(count, 2, generator=chance) * torch.tensor([width * 0.6, height * 0.6])
    size = torch.rand(count, 2, generator=chance) * torch.tensor([width * 0.3, height * 0.3]) + 10
    return torch.rand(3, height, width, generator=chance), {
        "boxes": torch.cat([corner, corner + size], 1), "labels": torch.randint(1, 21, (count,), generator=chance)}


model = fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=21).cuda()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.005, momentum=0.9, weight_decay=5e-4)
model.train()
for step in range(5):
    images, targets = zip(*[sample() for _ in range(4)])
    images = [image.cuda() for image in images]
    targets = [{name: value.cuda() for name, value in target.items()} for target in targets]
    losses = model(images, targets)
    loss = sum(losses.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, {name: round(value.item(), 3) for name, value in losses.items()})
model.eval()
with torch.no_grad():
    found = model([sample()[0].cuda() for _ in range(2)])
print([len(one["boxes"]) for one in found])
