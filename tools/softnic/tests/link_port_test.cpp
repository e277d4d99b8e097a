// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a modelled link, and how it is named.
#include "link/model.hpp"
#include "link/overhead.hpp"
#include "link/port.hpp"

#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace accel::softnic {
namespace {

constexpr std::uint64_t gigabit = 1'000'000'000;

TEST(link_port, packets_are_sent_one_after_the_other) {
    link_port port(8 * gigabit);  // a byte a nanosecond
    EXPECT_EQ(port.send(1000, 100), 1100u);
    EXPECT_EQ(port.send(1000, 50), 1150u) << "behind the first";
    EXPECT_EQ(port.send(2000, 50), 2050u) << "an idle port sends at once";
    EXPECT_EQ(port.busy_until(), 2050u);
}

TEST(link_port, loses_no_fraction_of_a_nanosecond) {
    link_port port(3 * gigabit);  // 8/3 ns a byte
    std::uint64_t left = 0;
    for (int count = 0; count < 3000; ++count) left = port.send(0, 1);
    EXPECT_EQ(left, 8000u);
}

TEST(link_port, a_packet_is_never_early) {
    link_port port(3 * gigabit);
    EXPECT_EQ(port.send(0, 1), 3u) << "2.67, rounded up";
}

TEST(link_port, an_acknowledgement_overtakes_and_delays_the_rest) {
    link_port port(8 * gigabit);
    EXPECT_EQ(port.send(0, 1000), 1000u);
    EXPECT_EQ(port.send_first(100, 86), 186u);
    EXPECT_EQ(port.send(100, 1000), 2086u);
}

TEST(link_port, packets_of_one_sender_arrive_as_they_are_sent) {
    link_port out(3 * gigabit);
    link_port in(3 * gigabit);
    for (int count = 0; count < 1000; ++count) {
        const std::uint64_t at = out.send(0, 1000) + 500;
        const std::uint64_t received = in.receive(at, 1000);
        ASSERT_GE(received, at);
        ASSERT_LE(received, at + 1);
    }
}

TEST(link_port, packets_of_two_senders_arrive_one_after_the_other) {
    link_port in(8 * gigabit);
    EXPECT_EQ(in.receive(1000, 100), 1000u);
    EXPECT_EQ(in.receive(1000, 100), 1100u);
    EXPECT_EQ(in.receive(1050, 100), 1200u);
    EXPECT_EQ(in.receive(5000, 100), 5000u);
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
