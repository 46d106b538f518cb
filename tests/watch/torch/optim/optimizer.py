_hooks = []


def register_optimizer_step_post_hook(hook):
    _hooks.append(hook)


class Optimizer:
    param_groups, state = (), {}

    def step(self):
        for hook in _hooks:
            hook(self, (), {})
