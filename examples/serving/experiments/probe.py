# SPDX-License-Identifier: Apache-2.0
"""What this machine can run."""
import json
import os
import platform
import shutil
import subprocess
from pathlib import Path

from matrix import ALL_MODELS, Machine

SECONDS = 30
KINDS = {".pt2": "aoti", ".pt": "torchscript"}  # in the order in which they are taken


def _output(command):
    """Standard output; empty where the program is absent or fails."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=SECONDS,
                              check=False)
        return done.stdout if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        return ""


def gpu_names():
    return [name.strip() for name in _output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).splitlines()]


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def has_adapter():
    folder = Path("/sys/class/infiniband")
    return folder.is_dir() and any(folder.iterdir())


def usable(doctor, gpu):
    """Transports that the doctor's JSON calls usable; those into GPU memory only with one."""
    try:
        schemes = {one["scheme"] for one in json.loads(doctor)["schemes"] if one["usable"]}
    except (ValueError, KeyError, TypeError):
        schemes = {"local", "tcp"}
    if not gpu:
        schemes -= {"gdr", "gpu"}
    order = ("local", "tcp", "zmq", "shm", "rdma", "gdr", "gpu")
    return tuple(name for name in order if name in schemes)


def model_kinds(folder):
    """{name: kind}: a file of this name in the folder, else synthetic."""
    found = {name: model_file(folder, name) if folder else None for name in ALL_MODELS}
    return {name: KINDS[file.suffix] if file else "synthetic" for name, file in found.items()} | {"digits": "builtin"}


def model_file(folder, name):
    """What AOTInductor has compiled is taken first: less of its time goes into launching kernels."""
    found = [folder / f"{name}{end}" for end in KINDS if (folder / f"{name}{end}").is_file()]
    return found[0] if found else None


def pacing_works(programs):
    """Whether this build's tcp takes the URI option `pacing`."""
    try:
        done = subprocess.run([str(programs / "load"), "tcp://127.0.0.1:1?insecure=true&pacing=1Gb/s", "--model",
                               "digits"], capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "'pacing'" not in done.stderr


def machine(programs, models):
    """`programs`: the folder of the built ones."""
    gpus = gpu_names()
    gpu = gpus[0] if gpus else ""
    softnic = programs / "softnic"
    emulated = not has_adapter() and softnic.is_file()
    prefix = [softnic, "run", "--"] if emulated else []
    doctor = _output(prefix + [programs / "accel_doctor", "--json"])
    return Machine(transports=usable(doctor, gpu), gpu=gpu, gpus=len(gpus), models=model_kinds(models if gpu else None),
                   gateway=(programs / "gateway").is_file(), emulated=emulated,
                   mps=bool(gpu and shutil.which("nvidia-cuda-mps-control")), cpu=cpu_name(),
                   cores=len(os.sched_getaffinity(0)))
