# SPDX-License-Identifier: Apache-2.0
"""The manifests fit the schemas of Kubernetes, and each other: check_manifests.py FOLDER"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "serving", "doors", "tests"))
from client_environment import SKIPPED, made_python  # noqa: E402

PACKAGES = ["kubernetes-validate==1.37.0", "PyYAML==6.0.4"]


def expect(good, what):
    if not good:
        sys.exit(f"check_manifests: {what}")


def read(name):
    import yaml
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return list(yaml.safe_load_all(file))


def patched(whole, patch):
    """A strategic merge, as far as these files need it: containers are found by their names."""
    if isinstance(whole, dict) and isinstance(patch, dict):
        out = dict(whole)
        for key, value in patch.items():
            out[key] = patched(whole[key], value) if key in whole else value
        return out
    if isinstance(patch, list) and all(isinstance(each, dict) and "name" in each for each in patch):
        changes = {each["name"]: each for each in patch}
        return [patched(each, changes.get(each["name"], {})) for each in whole]
    return patch


def check_pods(workload):
    """Probes, ports and volumes name what is there, and the pod has time to drain."""
    pod = workload["spec"]["template"]["spec"]
    expect(workload["spec"]["selector"]["matchLabels"] == workload["spec"]["template"]["metadata"]["labels"],
           f"{workload['metadata']['name']} does not select its pods")
    volumes = {each["name"] for each in pod["volumes"]}
    for one in pod["containers"]:
        ports = {each["name"] for each in one["ports"]}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            for how in ("tcpSocket", "httpGet"):
                if how in one.get(probe, {}):
                    expect(one[probe][how]["port"] in ports, f"{probe} of {one['name']} names no port")
        mounted = {each["name"] for each in one["volumeMounts"]}
        expect(mounted == volumes, f"{one['name']} mounts {mounted}, but there are {volumes}")


def check():
    import kubernetes_validate
    files = {name: read(name) for name in ("server.yaml", "gateway.yaml")}
    services, workloads = {}, {}
    for documents in files.values():
        for each in documents:
            (services if each["kind"] == "Service" else workloads)[each["metadata"]["name"]] = each
    servers = workloads["digits"]
    with_rdma = patched(servers, read("server-rdma.yaml")[0])
    for each in [*services.values(), *workloads.values(), with_rdma]:
        kubernetes_validate.validate(each, "1.37", strict=True)
    for each in [*workloads.values(), with_rdma]:
        check_pods(each)
    server = with_rdma["spec"]["template"]["spec"]["containers"][0]
    expect("rdma/hca_shared_devices_a" in server["resources"]["limits"], "the patch is not applied")
    for name, each in services.items():
        expect(each["spec"]["selector"] == workloads[name]["spec"]["selector"]["matchLabels"], f"{name} selects others")
    expect(services["digits"]["spec"]["clusterIP"] == "None", "the service of the servers has to be headless")
    arguments = workloads["gateway"]["spec"]["template"]["spec"]["containers"][0]["args"]
    models = [each for each in arguments if each.startswith("digits=")]
    expect(len(models) == 1 and models[0].startswith("digits=dns+tcp://digits:5555?"),
           "the gateway's model is not at the servers' name")
    broken = patched(servers, {"spec": {"replicas": "two"}})
    try:
        kubernetes_validate.validate(broken, "1.37", strict=True)
    except kubernetes_validate.ValidationError:
        return
    sys.exit("check_manifests: the validator takes anything")


if len(sys.argv) < 3:
    python = made_python(sys.argv[1], PACKAGES)
    if python is None:
        print("skipped: PyPI (or ACCEL_WHEELS) does not give kubernetes-validate")
        sys.exit(SKIPPED)
    sys.exit(subprocess.run([python, __file__, sys.argv[1], "inside"], check=False, timeout=100).returncode)
check()
