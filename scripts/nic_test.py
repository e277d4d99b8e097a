#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a person with an RDMA adapter runs first (`./run nic-test`): stock programs, then the library's own tests on the
real device, and a report of one page to paste into an issue. With --emulated all of it runs on softnic, and each line
of the table says so."""
import argparse
import datetime
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
COLUMNS = 120
SKIPPED = 77
FAILURES_SHOWN = 4
LINES_OF_A_FAILURE = 6


@dataclass
class Check:
    """One line of the table. `command` makes the exit status; 77 is a skip, whose reason the output names."""
    name: str
    what: str
    command: list = field(default_factory=list)
    environment: dict = field(default_factory=dict)
    seconds: int = 300
    missing: str = ""  # why it cannot run
    note: str = ""  # beside what was seen
    run: object = None  # in place of `command`: a function of (context, log) that returns (result, reason)


@dataclass
class Outcome:
    name: str
    what: str
    result: str  # pass, fail or skip
    reason: str
    seconds: float = 0.0
    excerpt: tuple = ()


@dataclass
class Context:
    """Where the checks run."""
    programs: Path
    gpu_programs: Path
    out: Path
    emulated: bool
    quick: bool
    fabric: int = 0

    def launcher(self):
        """Each check has an emulated network of its own."""
        if not self.emulated:
            return []
        return [str(self.programs / "softnic"), "run", "--fabric", f"nic-test-{os.getpid()}-{self.fabric}", "--"]


# What a program says.

def port_of(reason):
    """The device, port and GID that the doctor names; None if it says why there is none."""
    found = re.match(r"(\S+) port (\d+), (RoCE|InfiniBand) .*\(GID (\d+)\)", reason)
    if not found:
        return None
    return {"device": found[1], "port": int(found[2]), "roce": found[3] == "RoCE", "gid": int(found[4])}


def device_facts(text):
    """Firmware and numbers of the devices, from ibv_devinfo's output: {device: {key: value}}."""
    devices, current = {}, None
    for line in text.splitlines():
        key, colon, value = line.strip().partition(":")
        if key == "hca_id" and colon:
            current = devices.setdefault(value.strip(), {})
        elif current is not None and key in ("fw_ver", "vendor_part_id", "board_id", "state", "link_layer"):
            current.setdefault(key, value.strip())
    return devices


def gtest_result(status, text):
    """(result, reason) of a GoogleTest program that ended with `status` and printed `text`."""
    passed = len(re.findall(r"^\[       OK \]", text, re.M))
    skipped = len(re.findall(r"^\[  SKIPPED \] .* ms\)$", text, re.M))
    failed = list(dict.fromkeys(re.findall(r"^\[  FAILED  \] (\S+?),? .*ms\)$", text, re.M)))
    if status in (0, SKIPPED) and not failed and passed == 0:
        if not skipped and not re.search(r"^skipped: |Skipped\n", text, re.M):
            return "fail", "its filter selects no test"
        return "skip", skip_reason(text)
    if status == 0 and not failed:
        return "pass", f"{passed} tests" + (f", {skipped} skipped: {skip_reason(text)}" if skipped else "")
    if failed:
        return "fail", f"{len(failed)} of {passed + len(failed)} tests: {', '.join(failed[:2])}"
    return "fail", f"ended with {status} after {passed} tests: {last_line(text)}"


def skip_reason(text):
    told = re.findall(r"^skipped: (.*)$", text, re.M) + re.findall(r"Skipped\n(.+)", text)
    return told[0].strip() if told else "it has no test for this machine"


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no output"


def excerpt_of(text):
    """What went wrong, in a few lines: the first failure that GoogleTest names, else the end."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if line.endswith(": Failure"):
            return tuple(lines[number:number + LINES_OF_A_FAILURE])
    return tuple(lines[-LINES_OF_A_FAILURE:])


# The report.

def shortened(text, columns):
    return text if len(text) <= columns else text[:columns - 3] + "..."


def table(outcomes, device):
    """One line a check. The second column is the device: nobody takes an emulated line for a real one."""
    widths = [max([len(row.name) for row in outcomes] + [5]), max(len(device), 6)]
    head = f"{'check':{widths[0]}}  {'device':{widths[1]}}  result  seconds  what was seen"
    lines = [head, "  ".join("-" * each for each in (widths[0], widths[1], 6, 7, 13))]
    for row in outcomes:
        left = f"{row.name:{widths[0]}}  {device:{widths[1]}}  {row.result:6}  {row.seconds:7.1f}  "
        lines.append(left + shortened(row.reason, COLUMNS - len(left)))
    return lines


def summary(outcomes):
    count = {each: sum(row.result == each for row in outcomes) for each in ("pass", "fail", "skip")}
    return f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped"


def report(facts, outcomes, emulated, advice=()):
    device = "emulated" if emulated else "real"
    where = " (all on softnic, an emulated device)" if emulated else ""
    lines = [f"accel_transport nic-test: {summary(outcomes)}{where}", ""]
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        folded = textwrap.wrap(value, COLUMNS - width - 2, max_lines=2) or [""]
        lines += [f"{name:{width}}  {folded[0]}"] + [" " * (width + 2) + each for each in folded[1:]]
    lines += [""]
    lines += table(outcomes, device)
    failures = [row for row in outcomes if row.result == "fail"]
    for row in failures[:FAILURES_SHOWN]:
        lines += ["", f"{row.name}: {row.what}"] + ["  " + shortened(each, COLUMNS - 2) for each in row.excerpt]
    if len(failures) > FAILURES_SHOWN:
        lines += ["", f"{len(failures) - FAILURES_SHOWN} more failed: their logs are beside this report"]
    if advice:
        lines += [""] + [shortened(f"note: {each}", COLUMNS) for each in advice]
    return "\n".join(lines) + "\n"


# The machine.

def output_of(command, timeout=20):
    """Standard output; empty if the program is missing, fails or hangs."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def first_of(path):
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def distribution():
    found = re.search(r'^PRETTY_NAME="?(.*?)"?$', first_of("/etc/os-release"), re.M)
    return found[1] if found else "unknown"


def driver_of(emulated):
    if emulated:
        return "softnic, in place of a kernel driver"
    version = first_of("/sys/module/mlx5_core/version")
    return (f"mlx5_core {version}" if version else f"the kernel's own, {platform.release()}")


def libraries():
    found = output_of(["dpkg-query", "-W", "-f", "${Package} ${Version}, ", "libibverbs1", "ibverbs-providers"])
    return found.rstrip(", ") or "not by dpkg"


def gpu_facts():
    names = output_of(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).replace("\n", "; ")
    if not names:
        return "none"
    peer = "nvidia_peermem is loaded" if Path("/sys/module/nvidia_peermem").exists() else "no nvidia_peermem"
    return f"{names}; {peer}"


def machine_facts(context, doctor):
    found = port_of(doctor["reasons"].get("rdma", "")) or {}
    devices = device_facts(output_of(context.launcher() + ["ibv_devinfo"]))
    mine = devices.get(found.get("device"), {})
    firmware = f"{mine.get('fw_ver', 'unknown')}, board {mine.get('board_id', 'unknown')}, " \
               f"part {mine.get('vendor_part_id', 'unknown')}"
    commit = output_of(["git", "-C", str(TOP), "describe", "--always", "--dirty"]) or "no git"
    now = datetime.datetime.now(datetime.timezone.utc)
    return [("date", f"{now:%Y-%m-%d %H:%M} UTC"),
            ("version", f"{doctor.get('version', 'unknown')}, commit {commit}"),
            ("device", doctor["reasons"].get("rdma", "none")),
            ("firmware", firmware),
            ("others", ", ".join(sorted(set(devices) - {found.get("device")})) or "none"),
            ("driver", driver_of(context.emulated)),
            ("libraries", libraries()),
            ("machine", f"{distribution()}, Linux {platform.release()}, {platform.machine()}, {os.cpu_count()} cores"),
            ("GPU", gpu_facts())]


def ask_doctor(context):
    text = output_of(context.launcher() + [str(context.programs / "accel_doctor"), "--json"], 60)
    try:
        told = json.loads(text)
    except json.JSONDecodeError:
        return {"reasons": {}, "usable": {}, "advice": []}
    told["reasons"] = {each["scheme"]: each["reason"] for each in told["schemes"]}
    told["usable"] = {each["scheme"]: each["usable"] for each in told["schemes"]}
    return told


# Checks.

def doctor_check(doctor):
    def run(_context, log):
        log.write(json.dumps(doctor, indent=2))
        reason = doctor["reasons"].get("rdma", "the doctor said nothing")
        return ("pass" if doctor["usable"].get("rdma") else "fail"), reason
    return Check("doctor", "accel_doctor finds a device that rdma can use", run=run)


def port_check(found):
    def run(context, log):
        text = output_of(context.launcher() + ["ibv_devinfo", "-d", found["device"]])
        log.write(text)
        mine = device_facts(text).get(found["device"], {})
        active = "PORT_ACTIVE" in text
        seen = f"{mine.get('state', 'no state')}, {mine.get('link_layer', '')}".strip(", ")
        return ("pass" if active else "fail"), seen
    return Check("ibv_devinfo", "the stock program finds the port active", run=run)


def listens(port):
    text = first_of("/proc/net/tcp") + "\n" + first_of("/proc/net/tcp6")
    return re.search(rf":{port:04X} [0-9A-F]+:0000 0A ", text) is not None


def pingpong_check(name, found, options):
    def run(context, log):
        port = 20000 + os.getpid() % 10000
        where = ["-d", found["device"], "-i", str(found["port"])] + (["-g", str(found["gid"])] if found["roce"] else [])
        command = context.launcher() + ["timeout", "60", "ibv_rc_pingpong", "-p", str(port)] + where + options
        server = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + 20
            while not listens(port) and server.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            client = subprocess.run(command + ["127.0.0.1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    text=True, timeout=80, check=False)
            log.write(client.stdout)
            status = client.returncode or server.wait(timeout=70)
        finally:
            end(server)
        seen = re.search(r"([\d.]+) usec/iter", client.stdout)
        if status == 0 and seen:
            return "pass", f"{seen[1]} us a round trip of 4 KiB"
        return "fail", last_line(client.stdout)
    return Check(name, "two stock programs exchange messages through the adapter", run=run)


def end(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tests(context, name, what, program, pattern, **more):
    return Check(name, what, [str(context.programs / program), f"--gtest_filter={pattern}", "--gtest_color=no"], **more)


def suites(scheme, names):
    return ":".join(f"backends/{each}.*/{scheme}" for each in names.split())


ALL_SUITES = ("sizes random_calls deadlines cancelling lending closing readers stopping limits answers blocking "
              "waiting listening timelines targets described death reconnecting security")
QUICK_SUITES = "sizes random_calls deadlines"


def host_checks(context, gpu):
    """What needs the adapter and no GPU: threads are in the kernels' place."""
    quick = context.quick
    stand_in = context.emulated and not gpu
    memory = {"ACCEL_TEST_MEMORY": "fake" if stand_in else "cuda:0"}
    no_gpu = "" if gpu or context.emulated else "there is no GPU, or this build is without CUDA"
    by_library = {"ACCEL_TEST_DIRECT": "0"}
    wanted = QUICK_SUITES if quick else ALL_SUITES
    fewer = "sizes" if quick else "sizes random_calls answers waiting deadlines cancelling reconnecting"
    yield tests(context, "rdma", "conformance over rdma, queues driven directly where they are mlx5's",
                "conformance_tests", suites("rdma", wanted), seconds=900)
    yield tests(context, "rdma-libibverbs", "conformance over rdma by way of libibverbs", "conformance_tests",
                suites("rdma", fewer), environment=by_library)
    yield tests(context, "gdr", "conformance over gdr, payloads in a GPU's memory", "conformance_tests",
                suites("gdr", fewer), environment=memory, missing=no_gpu, seconds=600,
                note="a stand-in for the GPU, too" if stand_in else "")
    yield tests(context, "gpu", "conformance over gpu, threads of the host in the kernels' place", "conformance_tests",
                suites("gpu", fewer), seconds=600)
    yield tests(context, "gpu-proxy", "the same by the proxy", "conformance_tests",
                suites("gpu", "sizes" if quick else "sizes random_calls answers"), environment=by_library)
    yield tests(context, "services", "services and their queues, threads of the host in the kernels' place",
                "service_tests",
                "on/service_sequences*:*engine_that_was_asked_for*" if quick else "-by_owners/*:*device_faults*")
    yield tests(context, "exclusive", "services with one owner a session, DevX queues", "service_tests",
                "by_owners/service_sequences*" if quick else "by_owners/*")
    yield tests(context, "callers", "channels of kernels", "kernel_client_tests",
                "*call_sequences*" if quick else "*")


def gpu_checks(context, gpu):
    """Kernels that post to the adapter themselves."""
    programs = (("posting-shapes", "send_scopes_gpu_tests", "*", "work requests of a thread, a warp and a block"),
                ("posting-services", "gpu_resident_tests", "-*gpu_resident_faults*",
                 "kernels that serve: direct, proxy, exclusive"),
                ("posting-callers", "kernel_client_gpu_tests", "*", "kernels that call"),
                ("posting-recorded", "recorded_tests", "*", "services of recorded kernels"))
    for name, program, pattern, what in programs:
        path = context.gpu_programs / program
        missing = "" if gpu else "there is no GPU"
        if gpu and not path.exists():
            missing = "not built: nvcc is missing"
        yield Check(name, what, [str(path), f"--gtest_filter={pattern}", "--gtest_color=no"], missing=missing)


def all_checks(context, doctor, gpu):
    usable = doctor["usable"].get("rdma")
    found = port_of(doctor["reasons"].get("rdma", "")) if usable else None
    yield doctor_check(doctor)
    if usable and found is None:
        yield Check("port", "what the doctor says of rdma names device, port and GID",
                    run=lambda _context, _log: ("fail", "nic_test.py does not understand the doctor's sentence"))
    if found is None:
        return
    yield port_check(found)
    iterations = "200" if context.quick else "1000"
    yield pingpong_check("ibv_rc_pingpong", found, ["-c", "-n", iterations])
    yield pingpong_check("pingpong-events", found, ["-c", "-e", "-n", iterations])
    yield from host_checks(context, gpu)
    yield from gpu_checks(context, gpu)


def run_program(context, check, log):
    environment = {**os.environ, **check.environment}
    seconds = min(check.seconds, 120) if context.quick else check.seconds
    process = subprocess.Popen(context.launcher() + check.command, stdout=log, stderr=subprocess.STDOUT,
                               env=environment, start_new_session=True)
    try:
        status = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return "fail", f"no end after {seconds} s"
    finally:
        end(process)
    log.flush()
    return gtest_result(status, Path(log.name).read_text(encoding="utf-8", errors="replace"))


def perform(context, check):
    context.fabric += 1
    if check.missing:
        return Outcome(check.name, check.what, "skip", check.missing)
    path = context.out / f"{check.name}.log"
    begin = time.monotonic()
    with open(path, "w", encoding="utf-8") as log:
        try:
            result, reason = check.run(context, log) if check.run else run_program(context, check, log)
        except (OSError, subprocess.SubprocessError) as failure:
            result, reason = "fail", str(failure)
    text = path.read_text(encoding="utf-8", errors="replace")
    excerpt = excerpt_of(text) if result == "fail" else ()
    if check.note:
        reason = f"{reason}; {check.note}"
    return Outcome(check.name, check.what, result, reason, time.monotonic() - begin, excerpt)


def options():
    parser = argparse.ArgumentParser(prog="./run nic-test", description=__doc__)
    parser.add_argument("--emulated", action="store_true", help="on softnic, an emulated device")
    parser.add_argument("--quick", action="store_true", help="a small part of each check: less than a minute in all")
    parser.add_argument("--programs", type=Path, default=TOP / "build/release/bin", help=argparse.SUPPRESS)
    parser.add_argument("--gpu-programs", type=Path, default=TOP / "build/gpu/bin", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=TOP / "build/nic-test", help="folder of the report and the logs")
    return parser.parse_args()


def main():
    asked = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the programs are ended
    context = Context(asked.programs, asked.gpu_programs, asked.out, asked.emulated, asked.quick)
    if not asked.emulated and not output_of(["ls", "/sys/class/infiniband"]):
        print("nic-test: this machine has no RDMA device (/sys/class/infiniband is empty); "
              "--emulated runs it on softnic", file=sys.stderr)
        return 1
    if not asked.emulated and os.environ.get("SOFTNIC_FABRIC"):
        print("nic-test: it runs under softnic; say --emulated, so that the report does", file=sys.stderr)
        return 1
    shutil.rmtree(asked.out, ignore_errors=True)
    asked.out.mkdir(parents=True)
    doctor = ask_doctor(context)
    gpu = bool(output_of(["nvidia-smi", "-L"]))
    outcomes = []
    for check in all_checks(context, doctor, gpu):
        print(f"{check.name}: {check.what}", file=sys.stderr, flush=True)
        outcomes.append(perform(context, check))
    text = report(machine_facts(context, doctor), outcomes, context.emulated, doctor.get("advice", ()))
    (asked.out / "report.txt").write_text(text, encoding="utf-8")
    counts = [sum(row.result == each for row in outcomes) for each in ("pass", "fail", "skip")]
    (asked.out / "counts").write_text("{} {} {}\n".format(*counts), encoding="utf-8")
    print(text)
    print(f"The report is {asked.out / 'report.txt'}; paste it into an issue.")
    return 1 if counts[1] else 0


if __name__ == "__main__":
    sys.exit(main())
