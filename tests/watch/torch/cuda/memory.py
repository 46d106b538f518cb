from .. import _C


def _record_memory_history(enabled="all", context="all", stacks="all", max_entries=1, clear_history=False, skip_actions=None):
    _C._cuda_record_memory_history(enabled, context, max_entries, clear_history)
