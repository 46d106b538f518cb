"""Fine-tunes a language model of transformers as a row of tests/data was measured, and prints the figures of a row.

    python fine_tune.py '{"config": {…}, "dtype": "bf16", "method": "full", "ckpt": false, "attn": "sdpa", "loss": "own", …}'

The model comes from the row's own config; its weights are random and made on the device. Nothing is downloaded.
"""
import gc
import json
import sys

import torch
import torch.nn.functional as F
import transformers

ROW = {"method": "full", "attn": "sdpa", "loss": "own", "clip": None, "cache": False} | json.loads(sys.argv[1])
BF16 = ROW["dtype"] == "bf16"
allocated = torch.cuda.memory_allocated
marks, losses = {}, []

# Where the rows were measured, torchaudio was imported while the device was the default one, and left a constant there.
torchaudio_epsilon = torch.tensor(1.0, device="cuda")
torch.manual_seed(0)
config = dict(ROW["config"])
config.update(use_cache=ROW["cache"])
config = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
with torch.device("cuda"):
    net = transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.bfloat16 if BF16 else torch.float32, attn_implementation=ROW["attn"])
if ROW["method"] == "lora":
    import peft
    adapters = peft.LoraConfig(task_type="CAUSAL_LM", r=ROW["r"], lora_alpha=2 * ROW["r"], target_modules=ROW["targets"])
    net = peft.get_peft_model(net, adapters)
if ROW["ckpt"]:
    net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
net.train()
params = [p for p in net.parameters() if p.requires_grad]
optim = {
    "adamw": lambda: torch.optim.AdamW(params, lr=1e-5, foreach=True),
    "adamw-fused": lambda: torch.optim.AdamW(params, lr=1e-5, fused=True),
    "sgd": lambda: torch.optim.SGD(params, lr=1e-5),
    "sgd-momentum": lambda: torch.optim.SGD(params, lr=1e-5, momentum=0.9),
}[ROW["optimizer"]]()
draw, shape = torch.Generator().manual_seed(1), (ROW["batch"], ROW["seq"])
data = [tuple(torch.randint(0, config.vocab_size, shape, generator=draw).cuda() for _ in "xy") for _ in range(4)]
gc.collect()
before = allocated()
torch.cuda.synchronize()
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
for number in range(ROW["steps"]):
    x, y = data[number % 4]
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=not BF16):
        if ROW["loss"] == "own":
            out = net(input_ids=x, labels=y)
            loss = out.loss
        else:
            out = net(input_ids=x, labels=None)
            logits = out.logits.float()
            loss = F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), y[:, 1:].reshape(-1))
            del logits
    marks["forward"] = allocated()
    loss.backward()
    value = loss.detach()
    del out, loss
    marks["backward"] = allocated()
    if ROW["clip"]:
        torch.nn.utils.clip_grad_norm_(params, ROW["clip"])
    optim.step()
    marks["optimizer"] = allocated()
    optim.zero_grad(set_to_none=True)
    marks["zero_grad"] = allocated()
    losses.append(float(value))
stats = torch.cuda.memory_stats()
print(json.dumps({
    "allocated_before_step": before, "allocated_after": marks,
    "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved(),
    "reserved": torch.cuda.memory_reserved(), "inactive_split": stats["inactive_split_bytes.all.current"],
    "segments": stats["segment.all.current"], "allocations": stats["allocation.all.allocated"]}))
