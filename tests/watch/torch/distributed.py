"""Ranks that exchange something, as a launcher started them."""

import os


def is_available():
    return True


def is_initialized():
    return "RANK" in os.environ


def get_rank():
    return int(os.environ["RANK"])


def get_world_size():
    return int(os.environ["WORLD_SIZE"])
