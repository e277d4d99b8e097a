#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes files for model_server out of the six networks of networks.py: TorchScript (NAME.pt, for any machine) or
packages of AOTInductor (NAME.pt2, compiled for the GPU of this machine, a minute or more each). Weights are random and
the same for the same --seed; nothing is downloaded. Needs PyTorch and nothing else."""

import argparse
import pathlib
import sys
import time

try:
    import torch

    import networks
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    sys.exit("export.py: PyTorch is not installed for this python3: pip install torch")

ENDINGS = {"torchscript": ".pt", "aoti": ".pt2"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("models"), help="folder (models)")
    parser.add_argument("--format", choices=list(ENDINGS), default="torchscript")
    parser.add_argument("--only", nargs="+", choices=list(networks.NETWORKS), default=list(networks.NETWORKS))
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def write_torchscript(network, example, path):
    torch.jit.trace(network, example, check_trace=False).save(str(path))


def write_aoti(network, example, path):
    exported = torch.export.export(network.cuda(), (example.cuda(),))
    torch._inductor.aoti_compile_and_package(exported, package_path=str(path))


WRITERS = {"torchscript": write_torchscript, "aoti": write_aoti}


def check(name, network, example):
    """Sizes are what model_server expects; it would refuse the file."""
    outputs = network(example)
    outputs = [outputs] if torch.is_tensor(outputs) else outputs
    shapes = [list(each.shape) for each in outputs]
    if shapes != networks.output_shapes(name):
        sys.exit(f"export.py: {name} gives {shapes}, not {networks.output_shapes(name)}")


def export(name, options):
    network = networks.make(name, options.seed)
    example = torch.rand(networks.input_shape(name))
    check(name, network, example)
    path = options.out / (name + ENDINGS[options.format])
    partial = path.with_name("partial_" + path.name)
    WRITERS[options.format](network, example, partial)
    partial.replace(path)
    return path, networks.parameters_of(network)


def main():
    options = arguments()
    if options.format == "aoti" and not torch.cuda.is_available():
        sys.exit("export.py: --format aoti compiles for the GPU of this machine, and torch sees none")
    options.out.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(options.only, 1):
        begin = time.monotonic()
        print(f"[{number}/{len(options.only)}] {name} ...", end=" ", flush=True)
        with torch.no_grad():
            path, parameters = export(name, options)
        seconds = time.monotonic() - begin
        print(f"{parameters / 1e6:.2f} M parameters, {path}, {path.stat().st_size / 2**20:.0f} MiB, {seconds:.0f} s")


if __name__ == "__main__":
    main()
