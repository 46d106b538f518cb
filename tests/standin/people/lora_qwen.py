"""LoRA by peft on a Qwen2 in bf16, gradient checkpointing, samples of several lengths, a loop of one's own."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM, get_linear_schedule_with_warmup

torch.manual_seed(0)
device = torch.device("cuda")
config = Qwen2Config(hidden_size=896, intermediate_size=4864, num_hidden_layers=12, num_attention_heads=14, num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True)
model = Qwen2ForCausalLM(config).to(torch.bfloat16)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM")).to(device)
model.print_trainable_parameters()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
schedule = get_linear_schedule_with_warmup(optimizer, 2, 12)
lengths = torch.randint(64, 1024, (12, 4), generator=torch.Generator().manual_seed(1))
model.train()
for step, of_batch in enumerate(lengths.tolist()):
    longest = max(of_batch)
    ids = torch.randint(0, 151936, (4, longest))
    mask = torch.zeros(4, longest, dtype=torch.long)
    for row, length in enumerate(of_batch):
        mask[row, :length] = 1
    labels = ids.masked_fill(mask == 0, -100)
    out = model(input_ids=ids.to(device), attention_mask=mask.to(device), labels=labels.to(device))
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    print(f"step {step} loss {out.loss.item():.4f}")
