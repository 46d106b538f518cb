"""A small training as people write it: a few steps, one request that no card of 24 GB has room for, and the peaks."""
import torch

print("card", torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory)
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
steps = 0
for _ in range(5):
    inputs, labels = torch.randn(256, 512, device="cuda"), torch.zeros(256, dtype=torch.long, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    steps += 1
try:
    torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print("refused", error)
recurrent = torch.nn.LSTM(64, 128, 2).cuda()
recurrent(torch.randn(20, 16, 64, device="cuda"))[0].sum().backward()
print("recurrent", list(recurrent.weight_hh_l1.grad.shape), recurrent.weight_ih_l0.untyped_storage().nbytes())
print("steps", steps)
print("allocated", torch.cuda.max_memory_allocated())
print("reserved", torch.cuda.max_memory_reserved())
