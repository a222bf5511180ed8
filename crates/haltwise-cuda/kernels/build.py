"""Builds lstm.ptx from lstm.cu. Run by `make kernels`, with nvcc on the PATH.

The PTX is for any GPU from compute capability 8.0 on, and says that it is of version 7.8: it
uses nothing newer, and so drivers since CUDA 11.8 take it. ptxas checks that on the way."""

import pathlib
import re
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def fnv(text: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in text:
        value = (value ^ byte) * 0x100000001B3 & (2**64 - 1)
    return value


def main() -> None:
    source, target = HERE / "lstm.cu", HERE / "lstm.ptx"
    with tempfile.TemporaryDirectory() as folder:
        built = pathlib.Path(folder) / "lstm.ptx"
        command = ["nvcc", "-arch=compute_80", "-ptx", "-O3", "-std=c++17"]
        subprocess.run([*command, source, "-o", built], check=True)
        ptx = re.sub(r"(?m)^\.version .*$", ".version 7.8", built.read_text())
        ptx = re.sub(r"(?m)^\s*//.*\n", "", ptx)
        ptx = re.sub(r"(?m)^[ \t]+", "", ptx)
        ptx = re.sub(r"\n\n+", "\n", ptx)
        ptx = f"// built from lstm.cu, fnv1a {fnv(source.read_bytes()):016x}\n" + ptx.lstrip("\n")
        target.write_text(ptx)
    for arch in ["sm_80", "sm_90"]:
        subprocess.run(["ptxas", f"-arch={arch}", target, "-o", "/dev/null"], check=True)


if __name__ == "__main__":
    main()
