"""A ResNet for small images with Lightning: mixed precision in fp16, validation, metrics, callbacks."""
import lightning as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy
from torchvision.models import resnet18


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.net = resnet18(weights=None, num_classes=10)
        self.net.conv1, self.net.maxpool = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False), torch.nn.Identity()
        self.right = MulticlassAccuracy(10)

    def training_step(self, batch, at):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, at):
        x, y = batch
        self.right(self.net(x), y)
        self.log("right", self.right, on_epoch=True)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        return [optimizer], [torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)]


L.seed_everything(1)
data = TensorDataset(torch.randn(1280, 3, 32, 32), torch.randint(0, 10, (1280,)))
trainer = L.Trainer(max_epochs=2, limit_train_batches=5, limit_val_batches=2, precision="16-mixed", accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, gradient_clip_val=1.0)
trainer.fit(Classifier(), DataLoader(data, 128, shuffle=True, num_workers=2), DataLoader(data, 256, num_workers=2))
