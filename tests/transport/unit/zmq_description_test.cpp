// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/description.hpp"

#include <gtest/gtest.h>

namespace accel::zmq {
namespace {

curve_key some_key() {
    curve_key key{};
    for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
    return key;
}

TEST(zmq_description, a_description_is_read_as_it_was_written) {
    const auto plain = parse_server(encode(server_description{4'711, 7, std::nullopt})).value();
    EXPECT_EQ(plain.port, 4'711);
    EXPECT_EQ(plain.index, 7U);
    EXPECT_FALSE(plain.key.has_value());
    EXPECT_EQ(parse_server(encode(server_description{1, 0, some_key()})).value().key, some_key());
    EXPECT_EQ(parse_client(encode(client_description{some_key()})).value().key, some_key());
    EXPECT_FALSE(parse_client(encode(client_description{})).value().key.has_value());
}

TEST(zmq_description, a_description_of_another_length_is_refused) {
    for (const bool keyed : {false, true}) {
        const std::optional<curve_key> key = keyed ? std::optional{some_key()} : std::nullopt;
        for (const auto& whole : {encode(client_description{key}), encode(server_description{1, 0, key})}) {
            for (std::size_t length = 0; length <= 512; ++length) {
                if (length == whole.size()) continue;
                auto cut = whole;
                cut.resize(length);
                const bool client = whole.size() % 8 == 4;
                EXPECT_EQ(client ? parse_client(cut).code() : parse_server(cut).code(), status::protocol_error)
                    << length;
            }
        }
    }
}

TEST(zmq_description, a_description_with_an_invalid_field_is_refused) {
    for (const std::size_t at : {0U, 1U}) {  // format, mechanism
        for (int value = 0; value < 256; ++value) {
            auto client = encode(client_description{some_key()});
            auto server = encode(server_description{1, 0, some_key()});
            if (client[at] == static_cast<std::byte>(value)) continue;
            client[at] = server[at] = static_cast<std::byte>(value);
            EXPECT_EQ(parse_client(client).code(), status::protocol_error) << value;
            EXPECT_EQ(parse_server(server).code(), status::protocol_error) << value;
        }
    }
    EXPECT_EQ(parse_server(encode(server_description{0, 0, std::nullopt})).code(), status::protocol_error);
    EXPECT_EQ(parse_server(encode(server_description{1, 0, curve_key{}})).code(), status::protocol_error);
    EXPECT_EQ(parse_client(encode(client_description{curve_key{}})).code(), status::protocol_error);
    auto reserved = encode(client_description{});
    reserved[2] = std::byte{1};
    EXPECT_EQ(parse_client(reserved).code(), status::protocol_error);
}

}  // namespace
}  // namespace accel::zmq
