"""What the Python package says, without a program, PyTorch or a card: `python -m unittest` with `lab/python` on the path."""

import json
import os
import pickle
import sys
import tempfile
import unittest

from vramlab import Estimate, VramlabError, _call, _estimate, _fits, _report, _sizes

GIB = 1 << 30


def returns():
    return 7


def leaves():
    sys.exit(0)


def fails_to_leave():
    sys.exit(3)


def raises(what):
    raise what


class OutOfMemoryError(RuntimeError):
    """As PyTorch calls it."""


def report(**changes):
    device = {"device": 0, "peak_allocated": 3 * GIB, "peak_reserved": 4 * GIB, "findings": []}
    return {"devices": [{**device, **changes}]}


def outcome(**changes):
    device = {"peak_allocated": 3 * GIB, "peak_reserved": 4 * GIB, "memory": 24 * GIB}
    return {"ended": "returned", "torch": "2.11.0", "cuda": "13.0", "devices": [device], **changes}


def estimate(**changes):
    figures = _report.figures(report(), outcome())._asdict()
    return Estimate(**{"device": "t4", "recording": "/tmp/run.vram", **figures, **changes})


class Sizes(unittest.TestCase):
    def test_bytes_and_texts_are_read(self):
        for size, is_read in (
            (5, 5), ("5", 5), ("5B", 5), ("20GiB", 20 * GIB), ("1.5 gib", 3 * GIB // 2), ("2MB", 2_000_000), ("1KiB", 1024), ("1TiB", 1024 * GIB),
        ):
            self.assertEqual(_sizes.read(size), is_read, size)

    def test_what_is_no_size_is_refused(self):
        for size in ("", "GiB", "20 gibibytes", "-1GiB", -1, 1.5, True, None):
            with self.assertRaisesRegex(VramlabError, "give bytes, or a text"):
                _sizes.read(size)

    def test_they_are_told_as_the_screens_do(self):
        told = {0: "0 B", 1023: "1023 B", 1536: "1.50 KiB", 5 << 20: "5.00 MiB", 24526713856: "22.84 GiB"}
        self.assertEqual({size: _sizes.told(size) for size in told}, told)


class Figures(unittest.TestCase):
    def test_they_are_the_recordings(self):
        figures = _report.figures(report(), outcome())
        self.assertEqual((figures.peak_allocated, figures.peak_reserved, figures.memory), (3 * GIB, 4 * GIB, 24 * GIB))
        self.assertTrue(figures.complete)
        self.assertFalse(figures.out_of_memory)
        self.assertIsNone(figures.where)

    def test_a_peak_in_no_window_of_the_recording_counts(self):
        figures = _report.figures(report(peak_allocated=2 * GIB), outcome())
        self.assertEqual(figures.peak_allocated, 3 * GIB)
        self.assertFalse(figures.complete)

    def test_a_program_that_reset_its_peaks_hides_none(self):
        figures = _report.figures(report(), outcome(devices=[{"peak_allocated": 1, "peak_reserved": 1, "memory": GIB}]))
        self.assertEqual((figures.peak_allocated, figures.peak_reserved), (3 * GIB, 4 * GIB))
        self.assertTrue(figures.complete)

    def test_of_several_devices_the_fullest_counts(self):
        devices = report()["devices"] + report(device=1, peak_reserved=9 * GIB)["devices"]
        small = outcome()["devices"][0]
        figures = _report.figures({"devices": devices}, outcome(devices=[small, {**small, "memory": 80 * GIB}]))
        self.assertEqual((figures.peak_reserved, figures.memory), (9 * GIB, 80 * GIB))

    def test_out_of_memory_says_where_and_what_was_asked(self):
        evidence = {"kind": "out_of_memory", "requested": 2 * GIB}
        failed = outcome(ended="out of memory", error="OutOfMemoryError: CUDA out of memory.", where=["train.py:3", "net.py:9"])
        figures = _report.figures(report(findings=[{"evidence": {"kind": "stranded"}}, {"evidence": evidence}]), failed)
        self.assertTrue(figures.out_of_memory)
        self.assertEqual((figures.where, figures.asked), ("net.py:9", 2 * GIB))
        # One that the function got over is none of the estimate's.
        self.assertFalse(_report.figures(report(findings=[{"evidence": evidence}]), outcome()).out_of_memory)

    def test_a_recording_without_devices_has_none(self):
        for empty in ({}, {"devices": []}):
            with self.assertRaisesRegex(VramlabError, "no device"):
                _report.figures(empty, outcome())


class Refusals(unittest.TestCase):
    def refusal(self, **changes):
        return _report.refusal(outcome(**changes))

    def test_what_ran_is_not_refused(self):
        self.assertIsNone(self.refusal())
        self.assertIsNone(self.refusal(ended="out of memory", error="OutOfMemoryError: x", where=[]))

    def test_each_says_what_and_what_to_do(self):
        said = self.refusal(ended="raised", error="ValueError: a\nb", where=["f.py:1", "f.py:2"])
        self.assertEqual(said, "the function failed at f.py:2: ValueError: a b; make it run, then ask again")
        missing = self.refusal(ended="raised", error="ModuleNotFoundError: No module named 'torch'", where=[], torch=None, devices=[])
        self.assertIn("pip install torch", missing)
        cpu = self.refusal(ended="raised", error="AssertionError: Torch not compiled with CUDA enabled", cuda=None, devices=[])
        self.assertIn("without CUDA", cpu)
        self.assertIn("never used the GPU", self.refusal(devices=[]))
        self.assertIn("never imported PyTorch", self.refusal(torch=None, devices=[]))

    def test_a_long_message_is_cut(self):
        self.assertLess(len(self.refusal(ended="raised", error="E: " + "x" * 10_000, where=[])), 500)


class Calls(unittest.TestCase):
    def called(self, function, *args):
        """The exit code, and what was written down."""
        with tempfile.TemporaryDirectory() as folder:
            payload, written = os.path.join(folder, "payload"), os.path.join(folder, "outcome")
            with open(payload, "wb") as file:
                pickle.dump((function, args, {}), file)
            stderr, sys.stderr = sys.stderr, open(os.devnull, "w")
            try:
                code = _call.call(payload, written)
            finally:
                sys.stderr.close()
                sys.stderr = stderr
            with open(written, encoding="utf-8") as file:
                return code, json.load(file)

    def test_how_it_ended_is_written_down(self):
        self.assertEqual(self.called(returns)[0], 0)
        self.assertEqual(self.called(returns)[1]["ended"], "returned")
        self.assertEqual(self.called(leaves)[1]["ended"], "returned")
        code, ended = self.called(fails_to_leave)
        self.assertEqual((code, ended["ended"], ended["error"]), (1, "raised", "SystemExit: 3"))
        code, ended = self.called(raises, ValueError("no"))
        self.assertEqual((code, ended["ended"], ended["error"]), (1, "raised", "ValueError: no"))
        self.assertRegex(ended["where"][-1], r"test_package\.py:\d+$")
        self.assertEqual(self.called(raises, OutOfMemoryError("CUDA out of memory."))[1]["ended"], "out of memory")

    def test_an_interrupt_leaves_the_beginning(self):
        self.assertEqual(self.called(raises, KeyboardInterrupt()), (130, {"ended": "began"}))


class Outcomes(unittest.TestCase):
    def said(self, written, said):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "outcome")
            if written is not None:
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(written, file)
            with self.assertRaises(VramlabError) as caught:
                _estimate._outcome(path, said)
            return str(caught.exception)

    def test_what_never_began_says_what_vramlab_said(self):
        self.assertEqual(self.said(None, "\nthere is no card \"x\"; see vramlab list\n"), "there is no card \"x\"; see vramlab list")
        self.assertEqual(self.said(None, ""), "it said nothing")

    def test_what_ended_early_says_its_last_lines(self):
        self.assertIn("Segmentation fault", self.said({"ended": "began"}, "1\n2\n3\nSegmentation fault\n"))


class Told(unittest.TestCase):
    def test_a_line(self):
        self.assertEqual(
            str(estimate()), "t4: peak allocated 3.00 GiB; peak reserved 4.00 GiB; the card has 24.00 GiB. vramlab open /tmp/run.vram"
        )
        failed = str(estimate(out_of_memory=True, where="a.py:1", asked=GIB, memory=None))
        self.assertTrue(failed.startswith("t4: out of memory at a.py:1, asked for 1.00 GiB; peak allocated"), failed)

    def test_a_table_that_holds_no_markup_of_others(self):
        table = estimate(out_of_memory=True, where="<script>.py:1")._repr_html_()
        self.assertIn("&lt;script&gt;.py:1", table)
        self.assertNotIn("<script>", table)

    def test_whether_it_fits(self):
        self.assertTrue(estimate().fits)
        self.assertIsNone(_fits.broken(estimate(), None))
        self.assertIsNone(_fits.broken(estimate(), 4 * GIB))
        self.assertEqual(
            _fits.broken(estimate(), 4 * GIB - (GIB >> 1)),
            "on a simulated t4 it reserves 4.00 GiB, 512.00 MiB more than the 3.50 GiB of within=",
        )
        self.assertIn("out of memory at a.py:1", _fits.broken(estimate(out_of_memory=True, where="a.py:1"), None))


if __name__ == "__main__":
    unittest.main()
