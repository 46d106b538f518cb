"""A graph attention net of torch_geometric: masks of nodes, batches of graphs, pooling."""
import torch
import torch.nn.functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, global_mean_pool

torch.manual_seed(0)
chance = torch.Generator().manual_seed(5)


class Net(torch.nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.first, self.second = GATConv(inputs, hidden, heads=8, dropout=0.6), GATConv(hidden * 8, classes, heads=1, dropout=0.6)

    def forward(self, x, edges):
        x = F.dropout(x, 0.6, training=self.training)
        x = F.elu(self.first(x, edges))
        return self.second(F.dropout(x, 0.6, training=self.training), edges)


nodes = 20000
data = Data(torch.rand(nodes, 500, generator=chance), torch.randint(0, nodes, (2, 200000), generator=chance), y=torch.randint(0, 7, (nodes,), generator=chance))
data.train_mask = torch.rand(nodes, generator=chance) < 0.1
data.val_mask = ~data.train_mask & (torch.rand(nodes, generator=chance) < 0.2)
data = data.to("cuda")
model = Net(500, 8, 7).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
for epoch in range(10):
    model.train()
    optimizer.zero_grad()
    out = model(data.x, data.edge_index)
    loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        guess = model(data.x, data.edge_index).argmax(-1)
        right = (guess[data.val_mask] == data.y[data.val_mask]).sum().item() / int(data.val_mask.sum())
    print(epoch, loss.item(), right)


class Molecules(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = torch.nn.ModuleList([GCNConv(16, 128), GCNConv(128, 128), GCNConv(128, 128)]), torch.nn.Linear(128, 1)

    def forward(self, batch):
        x = batch.x
        for layer in self.layers:
            x = layer(x, batch.edge_index).relu()
        return self.head(global_mean_pool(x, batch.batch))


def graph():
    size = int(torch.randint(10, 60, (1,), generator=chance))
    return Data(torch.rand(size, 16, generator=chance), torch.randint(0, size, (2, size * 4), generator=chance), y=torch.rand(1, generator=chance))


model = Molecules().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(10):
    batch = Batch.from_data_list([graph() for _ in range(64)]).to("cuda")
    optimizer.zero_grad()
    loss = F.mse_loss(model(batch).squeeze(-1), batch.y)
    loss.backward()
    optimizer.step()
    print(step, float(loss))
