// SPDX-License-Identifier: Apache-2.0
#include "pair_fixture.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace accel::softnic {
namespace {

using testing::pair;

/// A file that goes with its test.
struct temporary {
    std::string path = [] {
        std::string name = "/tmp/softnic-trace-XXXXXX";
        const int file = ::mkstemp(name.data());
        ::close(file);
        return name;
    }();
    ~temporary() { std::remove(path.c_str()); }
    [[nodiscard]] std::string text() const {
        std::stringstream all;
        all << std::ifstream(path).rdbuf();
        return all.str();
    }
};

std::size_t count(const std::string& text, const std::string& word) {
    std::size_t found = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
    return found;
}

TEST_F(pair, a_trace_has_a_line_for_each_work_request_packet_and_completion) {
    const temporary file;
    ASSERT_TRUE(on.adapter.state.log.start(file.path));
    other.post_receive({});
    run(message(MLX5_OPCODE_RDMA_WRITE_IMM, 700));
    on.adapter.state.log.stop();
    run(message(MLX5_OPCODE_RDMA_WRITE, 1));
    const std::string text = file.text();
    EXPECT_EQ(count(text, " wqe        "), 1u) << text;
    EXPECT_EQ(count(text, " tx         write"), 3u) << "700 bytes are three packets of 256";
    EXPECT_EQ(count(text, " rx         write"), 3u);
    EXPECT_EQ(count(text, " cqe        "), 2u) << "one at each end";
    EXPECT_EQ(count(text, " last imm"), 2u) << "sent and received";
    EXPECT_GE(count(text, "psn 16777210"), 1u) << "the first PSN";
    const temporary other_file;
    ASSERT_TRUE(on.adapter.state.log.start(other_file.path));
    on.add_fault("drop op=write nth=1");
    run(message(MLX5_OPCODE_RDMA_WRITE, 10));
    on.adapter.state.log.stop();
    EXPECT_EQ(count(other_file.text(), " drop "), 1u) << other_file.text();
    EXPECT_EQ(count(other_file.text(), " timeout "), 1u);
}

}  // namespace
}  // namespace accel::softnic
