"""What a program reads of a card that is not there: what can be computed is, and each rule stands for what can't. Says the names of the
rules that it has seen; an assertion ends it."""
import torch

CARD = "cuda"


def unknown(*shape):
    """Numbers that only a card could compute."""
    square = torch.randn(max(shape, default=1), max(shape, default=1), device=CARD)
    return (square @ square).flatten()[: torch.Size(shape).numel()].view(shape)


def computed():
    tokens = torch.tensor([[3, 1, 2, 3], [5, 0, 0, 0]], device=CARD)
    mask = tokens != 0
    assert mask.tolist() == [[True] * 4, [True, False, False, False]]
    assert mask.sum(-1).tolist() == [4, 1] and mask.any() and not mask.all()
    assert tokens[mask].tolist() == [3, 1, 2, 3, 5] and mask.nonzero().shape == (5, 2)
    assert unknown(2, 4)[mask].shape == (5,)
    values, inverse, counts = tokens.unique(return_inverse=True, return_counts=True)
    assert (values.tolist(), counts.tolist()) == ([0, 1, 2, 3, 5], [3, 1, 1, 2, 1]) and inverse.shape == (2, 4)
    assert values[inverse].equal(tokens)
    positions = mask.long().cumsum(-1) - 1
    positions.masked_fill_(~mask, 1)
    assert positions.tolist() == [[0, 1, 2, 3], [0, 1, 1, 1]]
    assert torch.arange(10, device=CARD)[2:8:2].tolist() == [2, 4, 6]
    assert torch.nn.functional.one_hot(tokens[0], 4).sum().item() == 4
    assert torch.repeat_interleave(tokens[0], tokens[0]).tolist() == [3, 3, 3, 1, 2, 2, 3, 3, 3]
    assert tokens.t().contiguous().cpu().tolist() == [[3, 5], [1, 0], [2, 0], [3, 0]]
    assert tokens.topk(2).indices.tolist()[0] in ([0, 3], [3, 0]) and tokens.argmax(-1).tolist()[1] == 0
    assert torch.isin(tokens, torch.tensor([1, 2], device=CARD)).sum().item() == 2
    assert torch.bincount(tokens[0]).tolist() == [0, 1, 1, 2]
    assert (1 - mask.long()).sum().item() == 3 and (2 * tokens - 1).max().item() == 9 and (tokens / 2).dtype == torch.float32
    assert torch.unique(tokens[:, 2:], dim=0).tolist() == [[0, 0], [2, 3]]
    assert torch.vmap(lambda row: (row > 1).sum())(tokens).tolist() == [3, 1]
    assert torch.stack([tokens[0], tokens[1]]).sort(-1).values.tolist() == [[1, 2, 3, 3], [0, 0, 0, 5]]


def written():
    """What is written in place, through views, and by what is not followed."""
    numbers = torch.zeros(6, dtype=torch.long, device=CARD)
    numbers[1:3] = 7
    numbers += 1
    numbers.view(2, 3)[1] *= 4
    numbers[numbers == 4] = -1
    assert numbers.tolist() == [1, 8, 8, -1, -1, -1]
    host = torch.tensor([1, 2])
    there = host.to(CARD)
    host.zero_()
    assert there.tolist() == [1, 2], "the host's may be used again"
    with torch.inference_mode():
        counts = torch.zeros(3, dtype=torch.long, device=CARD).index_add_(0, there, torch.ones_like(there))
        assert counts.tolist() == [0, 1, 1]
    flags = torch.ones(2, dtype=torch.long, device=CARD)
    torch._foreach_mul_([flags], 5)
    assert flags.tolist() == [0, 0], "not what it was before an operation that is not followed"
    kept = [torch.full((4,), at, device=CARD) for at in range(2000)]
    del kept[::2]
    again = [torch.empty(4, dtype=torch.long, device=CARD) for _ in range(2000)]
    assert all(tensor.sum().item() == 0 for tensor in again), "memory that is used again has no old values"
    assert kept[3].tolist() == [7] * 4


def backward():
    """A second forward decides as the first did."""
    from torch.utils.checkpoint import checkpoint

    weight = torch.randn(8, 8, device=CARD, requires_grad=True)
    which = torch.tensor([0, 2, 2, 5], device=CARD)
    rows = []

    def run(inputs):
        chosen = torch.where(which == 2)[0]
        rows.append(len(chosen))
        return (inputs @ weight)[chosen].sum()

    for reentrant in (False, True):
        rows.clear()
        checkpoint(run, torch.randn(4, 8, device=CARD, requires_grad=True), use_reentrant=reentrant).backward()
        assert rows == [2, 2], (reentrant, rows)


def captured():
    """What a graph does is not done while it is captured."""
    numbers = torch.arange(3, device=CARD)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        numbers.add_(1)
    graph.replay()
    assert numbers.tolist() == [0, 0, 0]


def item():
    assert unknown(3).sum().item() == 0.0 and unknown(2).tolist() == [0.0, 0.0]


def rule_all():
    assert torch.equal(unknown(3), unknown(3))


def rule_any():
    # Too many to be followed.
    assert not (unknown(4).repeat(1 << 19) != 0).any()


def compare():
    assert not torch.isnan(unknown(4)).any() and not (unknown(4) == 2).any() and torch.isfinite(unknown(4)).all()


def keep():
    norm = unknown(4).sum()
    assert not norm < 0 and not norm > 1.0 and norm != float("inf") and norm < float("inf"), "one number is no filter: zero"
    scores = unknown(5)
    assert (scores > 0.5).sum().item() == 5 and scores[scores >= 0.1].shape == (5,) and (scores != 1).all()


def pick():
    chosen = unknown(64, 8).topk(2, dim=-1).indices
    assert torch.bincount(chosen.flatten(), minlength=8).tolist() == [16] * 8, "each expert gets as many"
    assert unknown(4, 1000).argmax(-1).tolist() == [500, 501, 502, 503]
    assert unknown(2, 100).softmax(-1).multinomial(1).max().item() < 100


def order():
    assert unknown(2, 4).argsort(-1).tolist() == [[0, 1, 2, 3]] * 2


def nonzero():
    assert unknown(3, 2).nonzero().tolist() == [[row, column] for row in range(3) for column in range(2)]


def unique():
    assert unknown(7).unique().shape == (7,)


def random():
    drawn = torch.rand(10_000, device=CARD)
    assert 4_000 < (drawn < 0.5).sum().item() < 6_000
    assert sorted(torch.randperm(100, device=CARD).tolist()) == list(range(100))
    assert set(torch.randint(3, 5, (100,), device=CARD).tolist()) == {3, 4}


def nms():
    try:
        import torchvision
    except ImportError:
        print("SKIPPED: nms needs torchvision")
        return
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [50, 50, 60, 60]], device=CARD)
    assert torchvision.ops.nms(boxes, torch.tensor([0.5, 0.9, 0.1], device=CARD), 0.5).tolist() == [1, 2]
    assert torchvision.ops.nms(boxes, unknown(3), 0.5).tolist() == [0, 1, 2]


def scaler():
    model = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    grads, scales = torch.amp.GradScaler("cuda"), []
    for _ in range(4):
        grads.scale(model(torch.randn(2, 4, device=CARD)).sum()).backward()
        grads.step(optimizer)
        grads.update()
        scales.append((grads.get_scale(), len(optimizer.state)))
    # With --skip-steps 2.
    assert scales == [(32768.0, 0), (16384.0, 0), (16384.0, 2), (16384.0, 2)], scales
    from vramlab_watch._kernels import _skipped

    assert (_skipped("2"), _skipped("1..4,0"), _skipped("")) == ([range(2)], [range(1, 4), range(0)], [range(0)])


def threads():
    import threading

    found = []
    thread = threading.Thread(target=lambda: found.append(torch.tensor([4, 0, 4], device=CARD).nonzero().flatten().tolist()))
    thread.start()
    thread.join()
    assert found == [[0, 2]]


def handed_on():
    """Tensors that are not plain pass as they would."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert (torch.zeros(4, device=CARD) * 2 + 1 > 0).shape == (4,)
    assert (torch.eye(3, device=CARD).to_sparse() * 2).shape == (3, 3)
    assert torch.func.grad(lambda x: (x * x * 2).sum())(torch.ones(3, device=CARD)).shape == (3,)
    half = torch.zeros((), dtype=torch.bfloat16, device=CARD)
    assert (half * 0.5).dtype == torch.bfloat16


for check in (computed, written, backward, threads, captured, handed_on):
    check()
    print("computed", check.__name__)
for rule in (item, rule_all, rule_any, compare, keep, pick, order, nonzero, unique, random, nms, scaler):
    rule()
    print("rule", rule.__name__.removeprefix("rule_"))
