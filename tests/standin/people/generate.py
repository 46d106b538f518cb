"""Text from a Llama with a cache of keys and values: greedy, sampled, by beams; a batch that is padded on the left."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4, vocab_size=32000, pad_token_id=0)
model = LlamaForCausalLM(config).to("cuda", torch.bfloat16).eval()
prompts = torch.randint(3, 32000, (4, 96))
mask = torch.ones_like(prompts)
for row, missing in enumerate((0, 10, 40, 77)):
    prompts[row, :missing], mask[row, :missing] = 0, 0
told = {"input_ids": prompts.to("cuda"), "attention_mask": mask.to("cuda"), "max_new_tokens": 64, "pad_token_id": 0}
for how in ({"do_sample": False}, {"do_sample": True, "top_p": 0.9, "temperature": 0.8}, {"num_beams": 4, "do_sample": False, "max_new_tokens": 16}):
    with torch.no_grad():
        print(how, tuple(model.generate(**{**told, **how}).shape))
