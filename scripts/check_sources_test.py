#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule of check_sources.py finds its offence, and nothing else."""
import tempfile
import unittest
from pathlib import Path

import add_spdx
import check_sources


def offences_of(path, *lines, licence=True):
    if licence and (comment := add_spdx.comment_of(Path(path), lines[0])):
        lines = (f"{comment} {add_spdx.LICENCE}", *lines)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, path)
        file.parent.mkdir(parents=True)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return list(check_sources.offences(Path(folder)))


HEADER = "#pragma once"


class IncludeRules(unittest.TestCase):
    def assert_offence(self, word, path, *lines):
        found = offences_of(path, *lines)
        self.assertEqual(1, len(found), found)
        self.assertIn(word, found[0])

    def assert_clean(self, path, *lines):
        self.assertEqual([], offences_of(path, *lines))

    def test_public_headers_include_only_public_headers(self):
        public = "include/accel_transport/a.hpp"
        self.assert_clean(public, HEADER, "#include <span>", "#include <accel_transport/status.hpp>")
        self.assert_offence("public header", public, HEADER, "#include <spdlog/spdlog.h>")
        self.assert_offence("public header", public, HEADER, "#include <zmq.h>")
        self.assert_offence("public header", public, HEADER, '#include "core/uri.hpp"')
        self.assert_offence("angle", public, HEADER, '#include "accel_transport/status.hpp"')

    def test_one_public_header_includes_asio(self):
        for_asio = "include/accel_transport/coro/asio.hpp"
        self.assert_clean(for_asio, HEADER, "#include <asio/post.hpp>", "#include <boost/asio/post.hpp>")
        self.assert_offence("public header", for_asio, HEADER, "#include <boost/beast.hpp>")
        self.assert_offence("public header", "include/accel_transport/coro.hpp", HEADER, "#include <asio/post.hpp>")
        self.assert_offence("Asio", "include/accel_transport/coro.hpp", HEADER,
                            "#include <accel_transport/coro/asio.hpp>")

    def test_only_src_cuda_includes_cuda(self):
        self.assert_offence("CUDA", "src/core/a.hpp", HEADER, "#include <cuda_runtime.h>")
        self.assert_clean("src/cuda/a.cpp", "#include <cuda_runtime.h>")
        self.assert_offence("only src/cuda and src/kernels", "src/core/a.cpp", "#include <cuda_runtime.h>")
        self.assert_clean("include/accel_transport/device/a.cuh", HEADER, "#include <cuda/atomic>")

    def test_backends_never_include_each_other(self):
        self.assert_offence("each other", "src/backends/tcp/backend.cpp", '#include "backends/zmq/link.hpp"')
        self.assert_clean("src/backends/tcp/backend.cpp", '#include "backends/tcp/link.hpp"')
        self.assert_offence("registry", "src/core/server.cpp", '#include "backends/tcp/backend.hpp"')
        self.assert_clean("src/core/registry.cpp", '#include "backends/tcp/backend.hpp"')
        self.assert_clean("tests/transport/unit/tcp_test.cpp", '#include "backends/tcp/backend.hpp"')

    def test_only_src_verbs_includes_libibverbs(self):
        self.assert_offence("libibverbs", "src/backends/rdma/backend.cpp", "#include <infiniband/verbs.h>")
        self.assert_clean("src/verbs/queue_pair.cpp", "#include <infiniband/verbs.h>")
        self.assert_clean("bench/transport/bare_verbs_link.cpp", "#include <infiniband/verbs.h>")
        self.assert_offence("libibverbs", "bench/transport/ours.cpp", "#include <infiniband/verbs.h>")

    def test_walls_between_houses(self):
        self.assert_offence("kernels", "src/core/server/a.cpp", '#include "kernels/kernel_host.hpp"')
        self.assert_offence("kernels", "src/verbs/a.cpp", "#include <accel_transport/device/service.hpp>")
        public, kernels = "include/accel_transport/a.hpp", "#include <accel_transport/gpu_service.hpp>"
        self.assert_offence("kernels", public, HEADER, kernels)
        self.assert_clean("include/accel_transport/gpu_graph.hpp", HEADER, kernels)
        self.assert_clean("src/kernels/a.cpp", "#include \"core/backend.hpp\"", kernels)
        self.assert_offence("softnic", "tools/softnic/src/a.cpp", "#include <accel_transport/status.hpp>")
        self.assert_offence("neither", "src/core/a.cpp", '#include "serving/models/model.hpp"')
        self.assert_offence("public", "examples/serving/a.cpp", '#include "kernels/kernel_host.hpp"')
        self.assert_offence("public", "python/bindings/a.cpp", '#include "core/uri.hpp"')

    def test_walls_between_tests_of_houses(self):
        ours, kernels, serving = (f"tests/{house}/a_test.cpp" for house in ("transport", "kernels", "serving"))
        for include in ('"kernels/proxy/proxy.hpp"', "<accel_transport/device/scope.hpp>",
                        '"kernels/gpu/fake_graph.hpp"', "<accel_transport/gpu_channel.hpp>"):
            self.assert_offence("nothing of kernels", ours, f"#include {include}")
        self.assert_offence("neither", ours, '#include "serving/load/run.hpp"')
        self.assert_offence("no models", ours, '#include "digits/network.hpp"')
        self.assert_clean(ours, '#include "core/uri.hpp"', '#include "gpu/fake_gpu.hpp"',
                          '#include "softnic/softnic.h"')
        self.assert_clean(kernels, '#include "kernels/proxy/proxy.hpp"', '#include "digits/network.hpp"')
        self.assert_offence("neither", kernels, '#include "serving/load/run.hpp"')
        self.assert_clean(serving, '#include "serving/load/run.hpp"', "#include <accel_transport/gpu_channel.hpp>")
        self.assert_offence("public", serving, '#include "core/uri.hpp"')
        self.assert_offence("softnic", "tools/softnic/tests/a_test.cpp", '#include "core/uri.hpp"')
        self.assert_offence("neither", "src/core/a.cpp", '#include "softnic/softnic.h"')

    def test_walls_between_benchmarks_of_houses(self):
        ours, kernels, serving = (f"bench/{house}/a.cpp" for house in ("transport", "kernels", "serving"))
        for include in ('"bench/kernels/emulated.hpp"', "<accel_transport/gpu_service.hpp>"):
            self.assert_offence("nothing of kernels", ours, f"#include {include}")
        for path in (ours, kernels):
            self.assert_offence("neither", path, '#include "bench/serving/nginx.hpp"')
        self.assert_clean(ours, '#include "softnic/softnic.h"')
        self.assert_clean(kernels, '#include "verbs/domain.hpp"', '#include "bench/transport/side.hpp"')
        self.assert_clean(serving, '#include "bench/kernels/emulated.hpp"', '#include "bench/transport/side.hpp"')
        self.assert_offence("public", serving, '#include "core/uri.hpp"')

    def test_only_sources_of_the_log_include_spdlog(self):
        self.assert_offence("spdlog", "src/core/log.hpp", HEADER, "#include <spdlog/spdlog.h>")
        self.assert_offence("spdlog", "tests/transport/unit/a_test.cpp", "#include <spdlog/sinks/ostream_sink.h>")
        self.assert_clean("src/core/log_stderr.cpp", "#include <spdlog/pattern_formatter.h>")

    def test_a_data_path_includes_no_locks_and_no_log(self):
        self.assert_offence("data path", "src/backends/tcp/datapath.cpp", "#include <mutex>")
        self.assert_offence("data path", "src/backends/tcp/datapath.cpp", '#include "core/log.hpp"')
        self.assert_offence("data path", "src/backends/rdma/send_datapath.cpp", '#include "core/log.hpp"')

    def test_examples_include_only_public_headers(self):
        self.assert_offence("public", "examples/hello.cpp", '#include "core/uri.hpp"')

    def test_headers_are_included_once(self):
        self.assert_offence("pragma", "src/core/a.hpp", "int a();")

    def test_public_types_are_documented(self):
        public = "include/accel_transport/a.hpp"
        self.assert_offence("comment", public, HEADER, "struct a {", "};")
        self.assert_clean(public, HEADER, "/// Says what.", "template <class T>", "class a {", "};", "class b;")

    def test_sources_need_a_licence(self):
        for path in ("src/core/a.cpp", "scripts/a.py", "tests/transport/unit/CMakeLists.txt"):
            found = offences_of(path, "", licence=False)
            self.assertEqual(1, len(found), found)
            self.assertIn("SPDX", found[0])
        self.assertEqual([], offences_of("docs/a.md", "# A page", licence=False))
        self.assertEqual("#!/bin/sh\n# " + add_spdx.LICENCE + "\necho\n",
                         add_spdx.with_licence(Path("run"), "#!/bin/sh\necho\n"))

    def test_names_of_tests_are_snake_case(self):
        for line in ("TEST(suite, ends_in_time) {", "TEST_P(a_suite, is_told_twice) {", "TEST_F(a,\n    b_2) {"):
            self.assert_clean("tests/transport/unit/a_test.cpp", line)
        for line in ("TEST(Suite, ends) {", "TEST_F(suite, EndsInTime) {", "TYPED_TEST(suite, endsInTime) {"):
            self.assert_offence("snake_case", "tests/transport/unit/a_test.cpp", line)

    def test_long_lines_are_refused(self):
        self.assert_clean("src/core/a.cpp", "// " + "ä" * 117)
        self.assert_offence("120 columns", "src/core/a.cpp", "// " + "a" * 118)
        self.assert_offence("120 columns", "docs/a.md", "a" * 121)
        self.assert_clean("docs/a.md", "| " + "a" * 121, "https://" + "a" * 121)

    def test_leftovers_and_machine_paths_are_refused(self):
        self.assert_offence("leftover", "src/core/a.cpp", "// TO" + "DO later")
        self.assert_offence("one machine", "docs/a.md", "see /" + "work/main/README.md")
        self.assert_clean("docs/a.md", "the framework/home/page, build/work/x")


if __name__ == "__main__":
    unittest.main()
