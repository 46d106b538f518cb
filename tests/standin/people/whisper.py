"""A Whisper that is fine-tuned in fp16 with a gradient scaler, then asked for text."""
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.manual_seed(0)
config = WhisperConfig(d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536)
model = WhisperForConditionalGeneration(config).to("cuda")
model.config.forced_decoder_ids = None
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
chance = torch.Generator().manual_seed(2)
for step in range(6):
    sound = torch.randn(8, 80, 3000, generator=chance).to("cuda")
    labels = torch.randint(0, 50000, (8, 64), generator=chance)
    labels[torch.arange(64) >= torch.randint(20, 64, (8, 1), generator=chance)] = -100
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(input_features=sound, labels=labels.to("cuda")).loss
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(step, loss.item())
model.eval()
with torch.no_grad():
    text = model.generate(torch.randn(2, 80, 3000, generator=chance).to("cuda"), max_new_tokens=24, do_sample=False)
print(text.shape[0])
