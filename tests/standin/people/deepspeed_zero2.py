"""DeepSpeed ZeRO 2 on two ranks: torchrun --nproc-per-node 2 deepspeed_zero2.py"""
import deepspeed
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=768, n_head=12))
engine, optimizer, _, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(),
    config={
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "bf16": {"enabled": True}, "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
        "zero_optimization": {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 50000000, "contiguous_gradients": True}})
for step in range(8):
    ids = torch.randint(0, 50257, (4, 512)).to(engine.device)
    loss = engine(ids, labels=ids).loss
    engine.backward(loss)
    engine.step()
    if engine.global_rank == 0:
        print(step, loss.item())
torch.distributed.destroy_process_group()
