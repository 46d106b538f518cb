"""Deep Q-learning on CartPole with a replay memory and a target net, as the tutorials write it."""
import random
from collections import deque

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import nn

random.seed(0)
torch.manual_seed(0)
device = "cuda"
env = gym.make("CartPole-v1")


def net():
    return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2)).to(device)


policy, target = net(), net()
target.load_state_dict(policy.state_dict())
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, amsgrad=True)
memory = deque(maxlen=10000)
steps = 0
for episode in range(40):
    state, _ = env.reset(seed=episode)
    state = torch.tensor(state, device=device).unsqueeze(0)
    for _ in range(60):
        steps += 1
        if random.random() > 0.3:
            with torch.no_grad():
                action = policy(state).max(1).indices.view(1, 1)
        else:
            action = torch.tensor([[env.action_space.sample()]], device=device)
        seen, reward, ended, cut, _ = env.step(action.item())
        after = None if ended else torch.tensor(seen, device=device).unsqueeze(0)
        memory.append((state, action, after, torch.tensor([reward], device=device)))
        if len(memory) >= 128:
            states, actions, afters, rewards = zip(*random.sample(memory, 128))
            lasting = torch.tensor([one is not None for one in afters], device=device, dtype=torch.bool)
            values = policy(torch.cat(states)).gather(1, torch.cat(actions))
            ahead = torch.zeros(128, device=device)
            with torch.no_grad():
                ahead[lasting] = target(torch.cat([one for one in afters if one is not None])).max(1).values
            loss = F.smooth_l1_loss(values, (ahead * 0.99 + torch.cat(rewards)).unsqueeze(1))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(policy.parameters(), 100)
            optimizer.step()
            with torch.no_grad():
                for mine, theirs in zip(target.parameters(), policy.parameters()):
                    mine.mul_(0.995).add_(theirs, alpha=0.005)
        state = after
        if ended or cut:
            break
print(steps, "steps")
