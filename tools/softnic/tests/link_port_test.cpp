// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a modelled link, and how it is named.
#include "link/model.hpp"
#include "link/overhead.hpp"
#include "link/port.hpp"

#include <algorithm>
#include <random>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace accel::softnic {
namespace {

constexpr std::uint64_t gigabit = 1'000'000'000;

/// Times as fractions, whose denominator is the rate: nothing is lost, and nothing is early.
class exact_port {
  public:
    explicit exact_port(std::uint64_t rate) : rate_(rate) {}
    std::uint64_t send(std::uint64_t ready_ns, std::uint32_t bytes) {
        free_ = std::max(free_, wide{ready_ns} * rate_) + takes(bytes);
        return round_up(free_);
    }
    std::uint64_t send_first(std::uint64_t ready_ns, std::uint32_t bytes) {
        send(ready_ns, bytes);
        return round_up(wide{ready_ns} * rate_ + takes(bytes));
    }
    /// Its last bit is here at that time, if no other packet is in its way.
    std::uint64_t receive(std::uint64_t at_ns, std::uint32_t bytes) {
        free_ = std::max(free_ + takes(bytes), wide{at_ns} * rate_);
        return round_up(free_);
    }

  private:
    __extension__ typedef unsigned __int128 wide;  // NOLINT(modernize-use-using)
    static wide takes(std::uint32_t bytes) { return wide{bytes} * 8'000'000'000; }
    [[nodiscard]] std::uint64_t round_up(wide time) const {
        return static_cast<std::uint64_t>((time + rate_ - 1) / rate_);
    }
    std::uint64_t rate_;
    wide free_ = 0;
};

TEST(link_port, packets_follow_one_another_to_the_fraction_of_a_nanosecond) {
    std::mt19937_64 random(1);
    for (const std::uint64_t rate : {gigabit * 8, gigabit * 3, gigabit * 400, std::uint64_t{64'000}, gigabit / 7}) {
        link_port out(rate), in(rate);
        exact_port expected_out(rate), expected_in(rate);
        std::uint64_t now = 0;
        for (int count = 0; count < 5000; ++count) {
            const auto bytes = static_cast<std::uint32_t>(1 + random() % (random() % 2 == 0 ? 100 : 4200));
            if (random() % 3 == 0) now += random() % 1000 * (random() % 20 == 0 ? 100'000 : 1);
            if (random() % 4 == 0) {
                ASSERT_EQ(out.send_first(now, bytes), expected_out.send_first(now, bytes));
            } else {
                const std::uint64_t sent = out.send(now, bytes);
                ASSERT_EQ(sent, expected_out.send(now, bytes)) << count << " of rate " << rate;
                ASSERT_EQ(out.busy_until(), sent);
            }
            ASSERT_EQ(in.receive(now, bytes), expected_in.receive(now, bytes)) << count << " of rate " << rate;
        }
    }
}

packet_header header_of(packet_kind kind, std::uint16_t bytes, std::uint8_t flags = 0) {
    packet_header header{};
    header.kind = kind;
    header.payload_bytes = bytes;
    header.flags = flags;
    return header;
}

TEST(link_overhead, the_overhead_is_that_of_rocev2_over_ethernet) {
    using overhead::wire_bytes;
    constexpr std::uint32_t each = 8 + 14 + 20 + 8 + 12 + 4 + 4 + 12;
    EXPECT_EQ(wire_bytes(header_of(packet_kind::write, 1024)), 1024 + each);
    EXPECT_EQ(wire_bytes(header_of(packet_kind::write, 1024, packet_flag::first)), 1024 + each + 16) << "RETH";
    EXPECT_EQ(wire_bytes(header_of(packet_kind::write, 100, packet_flag::last | packet_flag::immediate)),
              100 + each + 4);
    EXPECT_EQ(wire_bytes(header_of(packet_kind::send, 100, packet_flag::first)), 100 + each);
    EXPECT_EQ(wire_bytes(header_of(packet_kind::send, 101)), 104 + each) << "padded";
    EXPECT_EQ(wire_bytes(header_of(packet_kind::send, 0)), 8u + 64 + 12) << "no frame is shorter";
    EXPECT_EQ(wire_bytes(header_of(packet_kind::acknowledge, 0)), each + 4) << "AETH";
    EXPECT_EQ(wire_bytes(header_of(packet_kind::read_request, 0)), each + 16);
    EXPECT_EQ(wire_bytes(header_of(packet_kind::read_response, 1024)), 1024 + each);
    EXPECT_EQ(wire_bytes(header_of(packet_kind::read_response, 1024, packet_flag::last)), 1024 + each + 4);
    EXPECT_EQ(wire_bytes(header_of(packet_kind::atomic_request, 0)), each + 28);
    EXPECT_EQ(wire_bytes(header_of(packet_kind::atomic_response, 8)), each + 12);
    EXPECT_EQ(wire_bytes(header_of(packet_kind::datagram, 100, packet_flag::immediate)), each + 100 + 8 + 4);
}

TEST(link_model, a_message_is_late_after_ten_microseconds_or_five_percent) {
    EXPECT_FALSE(link_model::is_late(0, 1'000, 11'000));
    EXPECT_TRUE(link_model::is_late(0, 1'000, 11'001));
    EXPECT_FALSE(link_model::is_late(0, 1'000'000, 1'050'000));
    EXPECT_TRUE(link_model::is_late(0, 1'000'000, 1'050'001));
}

TEST(link_settings, link_settings_are_a_rate_and_a_delay) {
    EXPECT_EQ(parse_link("25Gb/s,1us"), (link_settings{25 * gigabit, 1'000}));
    EXPECT_EQ(parse_link("2.5Gb/s,0.5ms"), (link_settings{2'500'000'000, 500'000}));
    EXPECT_EQ(parse_link("100Mb/s,0ns"), (link_settings{100'000'000, 0}));
    EXPECT_EQ(parse_link("64kb/s,100ms"), (link_settings{64'000, 100'000'000}));
    EXPECT_EQ(parse_link("10Tb/s,7ns"), (link_settings{10'000 * gigabit, 7}));
    EXPECT_EQ(parse_link("50000b/s,1us"), (link_settings{50'000, 1'000}));
}

TEST(link_settings, invalid_link_settings_are_refused_with_a_sentence) {
    const auto problem = [](const char* text) {
        try {
            static_cast<void>(parse_link(text));
        } catch (const std::invalid_argument& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    EXPECT_EQ(problem("25Gb/s"), "SOFTNIC_LINK: \"25Gb/s\" is not RATE,DELAY, such as 25Gb/s,1us");
    EXPECT_EQ(
        problem("25GB/s,1us"),
        "SOFTNIC_LINK: \"25GB/s\" is not a valid rate: a number and b/s, kb/s, Mb/s, Gb/s or Tb/s, such as 25Gb/s");
    EXPECT_EQ(problem("25Gb/s,1"), "SOFTNIC_LINK: \"1\" is not a valid delay: a number and ns, us or ms, such as 1us");
    for (const char* wrong : {"", ",", "fast,1us", "-1Gb/s,1us", "1Gb/s,-1us", "1Gb/s,1s", "nanGb/s,1us", "infGb/s,1us",
                              "1e3Gb/s,1us", "1Gb/s,1us,", "1 Gb/s,1us"})
        EXPECT_NE(problem(wrong).find(" is not "), std::string::npos) << wrong;
    EXPECT_NE(problem("0Gb/s,1us").find("outside 10kb/s to 100Tb/s"), std::string::npos);
    EXPECT_NE(problem("1000Tb/s,1us").find("outside 10kb/s to 100Tb/s"), std::string::npos);
    EXPECT_NE(problem("1Gb/s,2000ms").find("more than 1000ms"), std::string::npos);
}

}  // namespace
}  // namespace accel::softnic
