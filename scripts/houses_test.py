#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which houses a change reaches, and what `./run test` runs for them."""
import os
import subprocess
import unittest
from pathlib import Path

from houses import HOUSES, TOP, reached, reached_by


def of_script(command, houses=""):
    """What a command prints in a shell that has sourced scripts/test.sh, as words."""
    script = f'root=$PWD; . scripts/packages.sh; . scripts/test.sh; {command}'
    environment = {**os.environ, "ACCEL_TEST_HOUSES": houses, "CMAKE_BUILD_PARALLEL_LEVEL": "2"}
    return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=TOP, env=environment, check=True,
                          capture_output=True, text=True).stdout.split()


class Reached(unittest.TestCase):
    def assert_reached(self, name, *houses):
        self.assertEqual(set(houses), reached_by(name), name)

    def test_a_house_reaches_those_that_use_it(self):
        for name in ("src/core/uri.cpp", "include/accel_transport/channel.hpp", "tests/transport/conformance/rig.hpp"):
            self.assert_reached(name, "transport", "kernels", "serving", "python")
        for name in ("src/kernels/proxy/proxy.cpp", "include/accel_transport/gpu_service.hpp",
                     "include/accel_transport/device/service.hpp", "tests/kernels/gpu/fake_graph.hpp"):
            self.assert_reached(name, "kernels", "serving")
        self.assert_reached("examples/serving/load/load.cpp", "serving")
        for name in ("python/bindings/channel.cpp", "python/tests/test_aio.py", "pyproject.toml", "docs/python.md"):
            self.assert_reached(name, "python")

    def test_softnic_reaches_all_whose_tests_run_on_it(self):
        self.assert_reached("tools/softnic/src/engine/nic.cpp", *set(HOUSES) - {"python"})
        self.assert_reached("tools/softnic/tests/dma_test.cpp", "softnic")

    def test_a_benchmark_reaches_its_house_and_those_that_use_it(self):
        self.assert_reached("bench/transport/ours.cpp", "transport", "kernels", "serving", "python")
        self.assert_reached("bench/serving/doors/load.cpp", "serving")

    def test_a_test_reaches_its_own_house(self):
        self.assert_reached("tests/transport/unit/uri_test.cpp", "transport")
        self.assert_reached("tests/kernels/fuzz/corpus/client_intake/seed", "kernels")
        self.assert_reached("tests/serving/doors/oip_test.cpp", "serving")

    def test_documents_reach_the_tests_that_read_them(self):
        for name in ("docs/architecture.md", "CHANGELOG.md", "docs/layers.svg", "tests/mutants/transport/tcp.toml",
                     ".ci/tidy-base"):
            self.assert_reached(name)
        for name in ("README.md", "docs/interceptors.md", "docs/metadata.md"):
            self.assert_reached(name, "transport")
        self.assert_reached("docs/metrics.md", "transport", "serving")

    def test_what_all_share_reaches_all(self):
        for name in ("CMakeLists.txt", "cmake/accel_tests.cmake", "run", "scripts/test.sh", "tests/patience.hpp",
                     "bench/run", "tests/CMakeLists.txt"):
            self.assert_reached(name, *HOUSES)

    def test_houses_come_once_and_in_order(self):
        self.assertEqual(["transport", "kernels", "serving", "python"],
                         reached(["src/kernels/a.cpp", "src/core/a.cpp"]))
        self.assertEqual([], reached(["docs/a.md"]))
        self.assertEqual([], reached([]))


class Steps(unittest.TestCase):
    def test_each_house_has_its_steps_in_order(self):
        self.assertEqual("format sources release demo asan tsan fuzz tidy manual".split(),
                         of_script("steps_of_houses", "serving"))
        self.assertEqual("format sources python pyasan manual".split(), of_script("steps_of_houses", "python"))
        self.assertEqual("format sources release programs nic rxe asan interop tsan fuzz install tidy manual".split(),
                         of_script("steps_of_houses", "transport softnic"))

    def test_steps_of_all_houses_are_all_steps(self):
        self.assertEqual(of_script('echo "${all_steps[@]}"'), of_script("steps_of_houses"))

    def test_builds_and_runs_only_the_named_houses(self):
        self.assertEqual([], of_script("house_build house_targets; house_labels"))
        self.assertEqual(["--", "tools/softnic/all"], of_script("house_build house_targets", "softnic"))
        self.assertEqual(["--label-regex", "^(kernels|serving)$"], of_script("house_labels", "kernels serving"))

    def test_load_generator_is_fetched_only_for_serving(self):
        def fetches(steps, houses):
            return of_script(f"if builds_serving {steps}; then echo yes; fi", houses) == ["yes"]
        self.assertTrue(fetches("format release", ""))
        self.assertTrue(fetches("asan", "kernels serving"))
        self.assertFalse(fetches("release asan tsan", "transport kernels"))
        self.assertFalse(fetches("format sources", "serving"))

    def test_every_house_is_in_every_table(self):
        self.assertEqual(list(HOUSES), of_script('echo "${houses[@]}"'))
        for table in ("targets", "benchmarks", "fuzz_targets", "corpora", "tsan_programs", "steps"):
            self.assertEqual(sorted(HOUSES), sorted(of_script(f'echo "${{!house_{table}[@]}}"')), table)
        for corpus in of_script("of_houses house_corpora"):
            self.assertTrue(Path(TOP, corpus).is_dir(), corpus)


if __name__ == "__main__":
    unittest.main()
