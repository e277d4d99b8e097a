// SPDX-License-Identifier: Apache-2.0
// Kernels, and programs, that were compiled with other device headers than the library.
#include "core/internals.hpp"
#include "device/client_rig.hpp"

#include <mutex>

namespace accel::tests {
namespace {

class layout_version : public ::testing::Test {
  protected:
    [[nodiscard]] bool has_logged(const std::string& sentence) {
        return eventually(patience(5s), [&] {
            const std::lock_guard lock(mutex_);
            return log_.find(sentence) != std::string::npos;
        });
    }

    client_rig rig_{{{false, gpu_engine::proxy}, true}};

  private:
    std::mutex mutex_;
    std::string log_;
    // Opened last: its sink is the process's.
    context logged_ = context::open({.log_sink = [this](log_level, std::string_view line) {
                          const std::lock_guard lock(mutex_);
                          log_ += line;
                      }}).value();
};

constexpr const char* a_kernel = "gpu: a kernel was compiled with version ";

TEST_F(layout_version, stale_kernel_of_a_service_is_refused_and_the_others_serve) {
    rig_.services.listen();
    device::service_ref stale = rig_.services.service->ref();
    ++stale.layout.version;
    const device::detail::service_state before = *stale.state;
    device::exchange_ref none;
    EXPECT_EQ(device::take(stale, none), status::unsupported);
    EXPECT_EQ(device::wait(stale, none, 1'000'000'000), status::unsupported);
    EXPECT_EQ(std::memcmp(&before, stale.state, sizeof before), 0) << "it has touched what is not its own";
    EXPECT_TRUE(has_logged(a_kernel));

    rig_.services.serve(echo);
    channel client = rig_.services.connect();
    EXPECT_TRUE(client.call(std::array<std::byte, 4>{}).ok());
    client.close();
    rig_.services.end_kernels();
    EXPECT_EQ(rig_.services.service->stop(nullptr, patience(5s)), status::unsupported);
}

TEST_F(layout_version, stale_kernel_that_calls_is_refused_and_ends_its_channel) {
    rig_.listen();
    rig_.connect();
    device::channel_ref stale = rig_.channel->ref();
    ++stale.layout.version;
    device::call_ref none;
    EXPECT_EQ(device::begin(stale, none), status::unsupported);
    EXPECT_EQ(rig_.channel->failure().reason, status::unsupported);
    EXPECT_TRUE(has_logged(a_kernel));
    EXPECT_EQ(rig_.channel->close(nullptr, patience(5s)), status::unsupported);
    EXPECT_EQ(rig_.channel->statistics().submitted, 0U);
}

TEST_F(layout_version, stale_program_is_refused_before_it_listens_or_connects) {
    constexpr std::uint32_t other = device::detail::layout_version + 1;
    const std::string sentence = "this program was compiled with version " + std::to_string(other);
    const auto service = core::internals::open<gpu_service>(rig_.services.server_context, "gpu://127.0.0.1:0",
                                                            rig_.services.options, other);
    ASSERT_FALSE(service.ok());
    EXPECT_EQ(service.error().code, status::unsupported);
    EXPECT_THAT(service.error().message, ::testing::HasSubstr(sentence));
    const auto channel =
        core::internals::open<gpu_channel>(rig_.services.client_context, "gpu://127.0.0.1:1", rig_.wanted, other);
    ASSERT_FALSE(channel.ok());
    EXPECT_EQ(channel.error().code, status::unsupported);
    EXPECT_THAT(channel.error().message, ::testing::HasSubstr(sentence));
}

}  // namespace
}  // namespace accel::tests
