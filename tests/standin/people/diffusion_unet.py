"""A diffusion UNet of diffusers with its noise schedule, autocast in bf16 and averaged weights."""
import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.training_utils import EMAModel

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=64, in_channels=3, out_channels=3, layers_per_block=2, block_out_channels=(128, 128, 256, 256, 512, 512),
    down_block_types=("DownBlock2D", "DownBlock2D", "DownBlock2D", "DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D", "UpBlock2D", "UpBlock2D", "UpBlock2D")).cuda()
schedule = DDPMScheduler(num_train_timesteps=1000)
average = EMAModel(model.parameters(), decay=0.9999)
average.to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(6):
    images = torch.rand(16, 3, 64, 64).cuda() * 2 - 1
    noise = torch.randn_like(images)
    times = torch.randint(0, schedule.config.num_train_timesteps, (images.shape[0],), device="cuda").long()
    noisy = schedule.add_noise(images, noise, times)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        predicted = model(noisy, times, return_dict=False)[0]
        loss = F.mse_loss(predicted, noise)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    average.step(model.parameters())
    optimizer.zero_grad(set_to_none=True)
    print(step, loss.item())
model.eval()
with torch.no_grad():
    sample = torch.randn(4, 3, 64, 64, device="cuda")
    schedule.set_timesteps(5)
    for t in schedule.timesteps:
        sample = schedule.step(model(sample, t).sample, t, sample).prev_sample
