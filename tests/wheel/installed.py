"""What an installed wheel does, run by the Python of its environment: `installed.py VERSION`.

Where the environment has PyTorch, a function is estimated. `tests/program/wheel.rs` runs it, and so does the release workflow on each wheel.
"""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile

from functions import MIB, takes, takes_too_much, trains, uses_no_gpu

VERSION = sys.argv[1] if len(sys.argv) > 1 else importlib.metadata.version("vramlab")


def ran(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def refused(call, *words):
    """What `call` raises has these words."""
    import vramlab

    try:
        call()
    except (vramlab.VramlabError, AssertionError) as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in: {error}"
    else:
        raise AssertionError(f"nothing was raised with {words}")


def of_the_program():
    """The command, on the path of the environment and as a module."""
    script = os.path.join(os.path.dirname(sys.executable), "vramlab")
    for command in ([script], [sys.executable, "-m", "vramlab"]):
        said = ran(*command, "--version")
        assert said == f"vramlab {VERSION}\n", said
    assert importlib.metadata.version("vramlab") == VERSION
    ran(script, "run", "gpt2", "--device", "sim:rtx-4090", "--batch", "2", "--steps", "2")


def of_the_packages():
    import vramlab
    import vramlab_watch
    from vramlab._binary import find

    here = os.path.realpath(sys.prefix)
    assert os.path.realpath(find()).startswith(here), find()
    for package in (vramlab, vramlab_watch):
        assert os.path.realpath(package.__file__).startswith(here), package.__file__
    assert os.path.exists(os.path.join(os.path.dirname(vramlab.__file__), "py.typed"))
    assert vramlab_watch.__version__ == VERSION, "vramlab_watch says another version than the program"
    assert {"estimate", "assert_fits", "Estimate", "VramlabError"} <= set(vramlab.__all__)


def of_estimates():
    import vramlab

    took = vramlab.estimate(takes, 40, device="t4")
    assert (took.peak_allocated, took.peak_reserved) == (80 * MIB, 80 * MIB), took
    assert took.fits and took.where is None and took.memory > 14 << 30, took
    assert os.path.exists(took.recording) and "80.00 MiB" in str(took) and "80.00 MiB" in took._repr_html_(), took
    assert "80.00 MiB" in took.report()

    one, eight = (vramlab.estimate(trains, batch, device="sim:rtx-4090") for batch in (64, 8192))
    # Weights, their gradients and both of Adam's states, and what grows with the batch.
    assert one.peak_allocated > 4 * 4 * 2 * 1024 * 4096, one
    assert eight.peak_allocated > one.peak_allocated and eight.peak_reserved >= eight.peak_allocated, (one, eight)

    big = vramlab.estimate(takes_too_much, device="rtx-4090")
    assert big.out_of_memory and not big.fits and "functions.py:" in big.where, big
    assert big.asked == 1 << 30, big
    assert vramlab.estimate(takes, 400, device="t4", limit="2GiB").memory < 3 << 30

    vramlab.assert_fits(takes, 40, device="t4", within="80MiB")
    refused(lambda: vramlab.assert_fits(takes, 40, device="t4", within="60MiB"), "20.00 MiB more", "peak")
    refused(lambda: vramlab.assert_fits(takes_too_much, device="t4"), "out of memory at", "t4")
    refused(lambda: vramlab.estimate(takes, "forty", device="t4"), "the function failed at", "TypeError")
    refused(lambda: vramlab.estimate(uses_no_gpu), "never used the GPU")
    refused(lambda: vramlab.estimate(takes, 40, device="rtx-4091"), "rtx-4091")
    refused(lambda: vramlab.estimate(os._exit, 4), "ended before the function did")
    with tempfile.TemporaryDirectory() as folder:
        kept = vramlab.estimate(takes, 40, device="t4", record=os.path.join(folder, "kept.vram"))
        assert kept.recording == os.path.join(folder, "kept.vram") and os.path.exists(kept.recording)
        refused(lambda: vramlab.estimate(takes, 40, record=kept.recording), "is there already")
    if importlib.util.find_spec("cloudpickle"):
        # As in a notebook: nothing that a module holds.
        assert vramlab.estimate(lambda: takes(40), device="t4").peak_allocated == 80 * MIB
    else:
        print("SKIPPED: functions of notebooks, because there is no cloudpickle here")


def torch_of_cuda():
    """Why there is nothing to estimate."""
    if importlib.util.find_spec("torch") is None:
        return "there is no PyTorch here"
    told = ran(sys.executable, "-c", "import torch; print(torch.version.cuda or '')").strip()
    return None if told else "PyTorch here is one without CUDA"


def main():
    of_the_program()
    of_the_packages()
    missing = torch_of_cuda()
    if missing is None:
        of_estimates()
        print("estimated with PyTorch")
    else:
        print(f"SKIPPED: estimates with PyTorch, because {missing}")


main()
