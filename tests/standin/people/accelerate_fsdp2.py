"""accelerate with FSDP2 on two ranks: torchrun --nproc-per-node 2 accelerate_fsdp2.py"""
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch.utils.data import DataLoader, TensorDataset
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

torch.manual_seed(0)
plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["LlamaDecoderLayer"], reshard_after_forward=True)
accelerator = Accelerator(mixed_precision="bf16", fsdp_plugin=plugin)
config = LlamaConfig(hidden_size=768, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=12, num_key_value_heads=4, vocab_size=32000)
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
data = DataLoader(TensorDataset(torch.randint(0, 32000, (64, 512))), batch_size=4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for step, (ids,) in enumerate(data):
    loss = model(input_ids=ids, labels=ids).loss
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.print(step, accelerator.gather(loss.detach()).mean().item())
    if step == 5:
        break
accelerator.end_training()
