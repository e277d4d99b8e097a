#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes files for model_server out of the networks of networks.py: TorchScript (NAME.pt, for any machine) or packages
of AOTInductor (NAME.pt2, compiled for the GPU of this machine, a minute or more each), or both. Weights are random and
the same for the same --seed; nothing is downloaded. Needs PyTorch and nothing else."""

import argparse
import os
import pathlib
import signal
import subprocess
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
CLOSE = 0.05  # of the largest output: TF32 differs by less


def as_list(outputs):
    return [outputs] if torch.is_tensor(outputs) else list(outputs)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("models"), help="folder (models)")
    parser.add_argument("--format", choices=[*ENDINGS, "both"], default="torchscript")
    parser.add_argument("--within", type=float, metavar="SECONDS", help="compile all networks beside each other, and "
                        "leave out those that are not compiled by then")
    parser.add_argument("--only", nargs="+", choices=list(networks.NETWORKS), default=list(networks.NETWORKS))
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def write_torchscript(network, example, path):
    torch.jit.trace(network, example, check_trace=False).save(str(path))


def write_aoti(network, example, path):
    network, example = network.cuda(), example.cuda()
    exported = torch.export.export(network, (example,))
    torch._inductor.aoti_compile_and_package(exported, package_path=str(path))
    answers, wanted = torch._inductor.aoti_load_package(str(path))(example), network(example)
    for one, other in zip(as_list(answers), as_list(wanted)):
        if float((one - other).abs().max()) > CLOSE * float(other.abs().max()):
            sys.exit("export.py: what was compiled answers something else than the network")


WRITERS = {"torchscript": write_torchscript, "aoti": write_aoti}


def check(name, network, example):
    """Sizes are what model_server expects; it would refuse the file."""
    shapes = [list(each.shape) for each in as_list(network(example))]
    if shapes != networks.output_shapes(name):
        sys.exit(f"export.py: {name} gives {shapes}, not {networks.output_shapes(name)}")


def export(name, kind, options):
    network = networks.make(name, options.seed)
    example = torch.rand(networks.input_shape(name))
    check(name, network, example)
    path = options.out / (name + ENDINGS[kind])
    partial = path.with_name("partial_" + path.name)
    WRITERS[kind](network, example, partial)
    partial.replace(path)
    return path, networks.parameters_of(network)


def export_all(kind, options):
    for number, name in enumerate(options.only, 1):
        begin = time.monotonic()
        print(f"[{number}/{len(options.only)}] {name} ...", end=" ", flush=True)
        with torch.no_grad():
            path, parameters = export(name, kind, options)
        seconds = time.monotonic() - begin
        print(f"{parameters / 1e6:.2f} M parameters, {path}, {path.stat().st_size / 2**20:.0f} MiB, {seconds:.0f} s")


def start_compiler(name, options, threads):
    command = [sys.executable, __file__, "--out", options.out, "--format", "aoti", "--only", name, "--seed",
               str(options.seed)]
    with open(options.out / f"{name}.log", "wb") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": str(threads)})


def compile_within(options):
    """A process for each network. Those that need longer are ended; their TorchScript is served."""
    begin = time.monotonic()
    threads = max(1, (os.cpu_count() or 1) // len(options.only))
    compilers = {name: start_compiler(name, options, threads) for name in options.only}
    try:
        for name, compiler in compilers.items():
            try:
                status = compiler.wait(max(0.0, options.within - (time.monotonic() - begin)))
                end = "compiled" if status == 0 else f"could not be compiled: see {options.out / name}.log"
            except subprocess.TimeoutExpired:
                end = f"not compiled within {options.within:.0f} s"
            print(f"{name}: {end}", flush=True)
    finally:
        for compiler in compilers.values():
            if compiler.poll() is None:
                os.killpg(compiler.pid, signal.SIGKILL)
                compiler.wait()


def main():
    options = arguments()
    # So that compilers end with this program, whatever ends it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("export.py: ended by SIGTERM"))
    if options.format == "aoti" and not torch.cuda.is_available():
        sys.exit("export.py: AOTInductor compiles for the GPU of this machine, and torch sees none")
    options.out.mkdir(parents=True, exist_ok=True)
    kinds = list(ENDINGS) if options.format == "both" else [options.format]
    if options.format == "both" and not torch.cuda.is_available():
        print("torch sees no GPU: nothing is compiled")
        kinds = ["torchscript"]
    for kind in kinds:
        if kind == "torchscript" or options.within is None:
            export_all(kind, options)
        elif options.within > 0:
            compile_within(options)



if __name__ == "__main__":
    main()
