"""Packs a wheel as `lab/python/pyproject.toml` describes it, from a binary that is there: `pack.py PYPROJECT BINARY VERSION FOLDER`.

The released ones are maturin's, which builds the binary itself and needs all crates of all platforms for it; this one needs nothing but
Python, so that the packages and the installation are tested everywhere.
"""

import ast
import base64
import hashlib
import os
import platform
import re
import sys
import zipfile


def listed(text, key):
    """A list of the file, which stands on one line."""
    return ast.literal_eval(re.search(rf"^{key} = (\[.*\])$", text, re.MULTILINE).group(1))


def files(pyproject, binary, version):
    """Names in the wheel, with what they hold."""
    root = os.path.dirname(os.path.abspath(pyproject))
    with open(pyproject, encoding="utf-8") as file:
        text = file.read()
    for package in listed(text, "python-packages"):
        for folder, _, names in os.walk(os.path.join(root, package)):
            if os.path.basename(folder) != "__pycache__":
                for name in sorted(names):
                    path = os.path.join(folder, name)
                    with open(path, "rb") as file:
                        yield os.path.relpath(path, root), file.read()
    with open(binary, "rb") as file:
        yield f"vramlab-{version}.data/scripts/vramlab", file.read()
    needs = "".join(f"Requires-Dist: {one}\n" for one in listed(text, "dependencies"))
    metadata = f"Metadata-Version: 2.1\nName: vramlab\nVersion: {version}\n{needs}"
    yield f"vramlab-{version}.dist-info/METADATA", metadata.encode()
    tag = f"py3-none-linux_{platform.machine()}"
    yield f"vramlab-{version}.dist-info/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()


def main():
    pyproject, binary, version, folder = sys.argv[1:]
    path = os.path.join(folder, f"vramlab-{version}-py3-none-linux_{platform.machine()}.whl")
    record = f"vramlab-{version}.dist-info/RECORD"
    lines = []
    # Stored: a binary with debug information takes long to compress.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as wheel:
        for name, data in files(pyproject, binary, version):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            wheel.writestr(entry, data)
        wheel.writestr(record, "".join([*lines, f"{record},,\n"]))
    print(path)


main()
