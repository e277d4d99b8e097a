// Ten thousand connects and disconnects: no descriptor, no memory, no session left behind.
#include "rig.hpp"

#include <cstdio>
#include <filesystem>

#include <unistd.h>

namespace accel::tests {
namespace {

class leaks : public on_every_backend {};

std::size_t open_descriptors() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count - 1;  // the directory's own
}

std::size_t resident_bytes() {
    unsigned long total = 0;
    unsigned long resident = 0;
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr) return 0;
    const int read = std::fscanf(file, "%lu %lu", &total, &resident);
    std::fclose(file);
    return read == 2 ? resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

TEST_P(leaks, connect_and_disconnect) {
    rig r(GetParam());
    channel_options options = calm_client();
    options.slots = 2;
    options.request_bytes = options.response_bytes = 4096;
    const auto once = [&](std::uint64_t i) {
        auto client = r.connect(options);
        if (i % 4 != 0) {
            client.send_seed(100, i);
            if (i % 4 == 1) return client.forget();  // dropped with a call in flight
            EXPECT_EQ(client.finish(status::ok), 1U);
        }
    };
    const auto all_gone = [&] {
        return eventually(patience(10s), [&] { return r.served().statistics().sessions == 0; });
    };
    const auto total = static_cast<std::uint64_t>(effort(static_cast<int>(GetParam().connects)));
    const std::uint64_t warm_up = total / 5;
    for (std::uint64_t i = 0; i < warm_up; ++i) once(i);
    ASSERT_TRUE(all_gone());
    const std::size_t descriptors = open_descriptors();
    const std::size_t memory = resident_bytes();
    for (std::uint64_t i = warm_up; i < total; ++i) once(i);
    ASSERT_TRUE(all_gone());
    EXPECT_TRUE(eventually(patience(5s), [&] { return open_descriptors() <= descriptors; }))
        << open_descriptors() << " descriptors are open, " << descriptors << " were after the first "
        << warm_up;
    // 100 bytes a connection would be 800 kB more.
    if (time_factor() == 1) {
        EXPECT_LT(resident_bytes(), memory + (3U << 20));
    }
    EXPECT_EQ(r.served().statistics().sessions_opened, total);
    EXPECT_TRUE(eventually(patience(10s), [&] { return r.served().statistics().memory_bytes == 0; }));
    RecordProperty("connects", static_cast<int>(total));
}

TEST_P(leaks, refused_connects) {
    server_options options = calm_server();
    options.max_request_bytes = 10;
    rig r(GetParam(), echo, options);
    channel_options asks_too_much = calm_client();
    const int total = effort(500);
    for (int i = 0; i < total / 5; ++i)
        EXPECT_EQ(r.try_connect(asks_too_much).code(), status::message_too_large);
    const std::size_t descriptors = open_descriptors();
    for (int i = 0; i < total; ++i) EXPECT_EQ(r.try_connect(asks_too_much).code(), status::message_too_large);
    EXPECT_TRUE(eventually(patience(5s), [&] { return open_descriptors() <= descriptors; }));
}

TEST_P(leaks, servers_and_contexts) {
    const auto once = [&] {
        rig r(GetParam());
        auto client = r.connect();
        client.send_seed(10, 1);
        EXPECT_EQ(client.finish(status::ok), 1U);
    };
    for (int i = 0; i < 3; ++i) once();
    const std::size_t descriptors = open_descriptors();
    for (int i = 0; i < effort(30); ++i) once();
    EXPECT_TRUE(eventually(patience(5s), [&] { return open_descriptors() <= descriptors; }))
        << open_descriptors() << " open, " << descriptors << " before";
}

ACCEL_INSTANTIATE(leaks, all_backends);

}  // namespace
}  // namespace accel::tests
