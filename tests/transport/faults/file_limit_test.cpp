// SPDX-License-Identifier: Apache-2.0
// `ulimit -f`: a file beyond it is a signal that ends the process, and shared memory is a file.
#include "conformance/rig.hpp"

#include <sys/resource.h>

namespace accel::faults {
namespace {

using namespace tests;

class files_may_have {
  public:
    explicit files_may_have(rlim_t bytes) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit lower{bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &lower);
    }
    ~files_may_have() { ::setrlimit(RLIMIT_FSIZE, &before_); }
    files_may_have(const files_may_have&) = delete;
    files_may_have& operator=(const files_may_have&) = delete;

  private:
    rlimit before_{};
};

class file_size_limit : public on_every_backend {};

TEST_P(file_size_limit, a_file_size_limit_is_an_error_or_does_not_matter) {
    if (GetParam().scheme == "rdma") GTEST_SKIP() << "softnic cannot begin below the limit, and says so";
    channel_options large = calm_client();
    large.request_bytes = large.response_bytes = 4 << 20;
    rig r(GetParam());
    auto before = r.connect();
    {
        const files_may_have limit(1 << 20);
        const auto connected = r.try_connect(large);
        if (GetParam().scheme == "shm") {
            EXPECT_EQ(connected.code(), status::out_of_memory);
            EXPECT_NE(connected.error().message.find("ulimit -f"), std::string::npos) << connected.error().message;
        } else {
            EXPECT_TRUE(connected.ok());
        }
        before.send_seed(100, 1);
        EXPECT_EQ(before.finish(status::ok), 1U);
    }
    EXPECT_TRUE(r.try_connect(large).ok());
}

ACCEL_INSTANTIATE(file_size_limit, all_backends);

}  // namespace
}  // namespace accel::faults
