"""Functions to estimate. They lie in a module, as those of a test do."""

MIB = 1 << 20


def takes(mib):
    """Blocks of the sizes that the allocator hands out as they are."""
    import torch

    first = torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")
    second = torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")
    del first, second
    return torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")


def takes_too_much():
    import torch

    return [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(64)]


def trains(batch):
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(batch, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def uses_no_gpu():
    import torch

    return torch.zeros(3)
