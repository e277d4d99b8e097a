// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/coding/content_coding.hpp"
#include "serving/doors/coding/deflater.hpp"
#include "serving/doors/coding/inflater.hpp"

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::coding {
namespace {

std::string packed(content_coding how, std::string_view plain) {
    deflater packer{how};
    std::string out;
    EXPECT_TRUE(packer.add(std::as_bytes(std::span{plain}), out));
    EXPECT_TRUE(packer.finish(out));
    return out;
}

result<std::string> inflated(content_coding how, std::string_view text, std::size_t limit, std::size_t piece = 1000) {
    std::vector<std::span<const std::byte>> pieces;
    for (auto rest = std::as_bytes(std::span{text}); !rest.empty(); rest = rest.subspan(pieces.back().size()))
        pieces.push_back(rest.first(std::min(piece, rest.size())));
    memory_share memory{std::make_shared<doors::memory_budget>(std::size_t{1} << 30)};
    return inflate_all(how, pieces, limit, memory);
}

constexpr content_coding both[] = {content_coding::gzip, content_coding::deflate};

TEST(coding, compressed_data_is_restored_from_pieces_of_any_size) {
    std::string plain;
    for (int i = 0; i < 20'000; ++i) plain += std::to_string(i * 7919);
    for (const content_coding how : both) {
        const std::string text = packed(how, plain);
        EXPECT_LT(text.size(), plain.size());
        for (const std::size_t piece : {std::size_t{1}, std::size_t{1000}, text.size()})
            EXPECT_EQ(inflated(how, text, plain.size(), piece).value(), plain);
        EXPECT_EQ(inflated(how, packed(how, ""), 0).value(), "");
    }
}

TEST(coding, inflated_data_ends_at_its_limit) {
    for (const content_coding how : both) {
        const std::string bomb = packed(how, std::string(50'000'000, 'a'));
        EXPECT_EQ(inflated(how, bomb, 1'000'000).code(), status::message_too_large);
        const std::string whole = packed(how, std::string(1000, 'a'));
        EXPECT_EQ(inflated(how, whole, 999).code(), status::message_too_large);
        EXPECT_TRUE(inflated(how, whole, 1000));
    }
}

TEST(coding, truncated_changed_or_longer_data_is_refused) {
    for (const content_coding how : both) {
        const std::string good = packed(how, "tensors, tensors, tensors");
        for (std::size_t length = 0; length < good.size(); ++length)
            EXPECT_FALSE(inflated(how, good.substr(0, length), 100)) << length;
        EXPECT_FALSE(inflated(how, good + "x", 100));
        EXPECT_FALSE(inflated(how, good + "x", 100, good.size()));
        EXPECT_FALSE(inflated(how, good + good, 100));
        std::string changed = good;
        changed[good.size() - 6] ^= 1;  // the checksum
        EXPECT_FALSE(inflated(how, changed, 100));
        EXPECT_FALSE(inflated(how, "tensors, tensors, tensors", 100));
    }
    EXPECT_FALSE(inflated(content_coding::gzip, packed(content_coding::deflate, "a"), 100));
}

TEST(coding, messages_share_one_memory_budget) {
    const std::string text = packed(content_coding::gzip, std::string(60'000, 'x'));
    const auto budget = std::make_shared<doors::memory_budget>(100'000);
    const std::vector pieces{std::as_bytes(std::span{text})};
    memory_share first{budget};
    ASSERT_TRUE(inflate_all(content_coding::gzip, pieces, 80'000, first));
    EXPECT_GE(budget->taken(), 60'000U);
    {
        memory_share second{budget};
        EXPECT_EQ(inflate_all(content_coding::gzip, pieces, 80'000, second).code(), status::overloaded);
    }
    EXPECT_EQ(budget->taken(), first.bytes()) << "what was refused has given back";
    first = {};
    EXPECT_EQ(budget->taken(), 0U);
    memory_share none;
    EXPECT_EQ(inflate_all(content_coding::gzip, pieces, 80'000, none).code(), status::overloaded);
}

TEST(coding, a_client_names_its_coding_and_what_it_accepts) {
    using enum content_coding;
    for (const auto& [name, wanted] :
         std::initializer_list<std::pair<const char*, std::optional<content_coding>>>{{"GZip", gzip},
                                                                                      {"x-gzip", gzip},
                                                                                      {"deflate", deflate},
                                                                                      {"", identity},
                                                                                      {"identity", identity},
                                                                                      {"br", std::nullopt},
                                                                                      {"gzip, gzip", std::nullopt}})
        EXPECT_EQ(coding_of(name), wanted) << name;
    for (const auto& [header, wanted] :
         std::initializer_list<std::pair<const char*, content_coding>>{{"", identity},
                                                                       {"gzip", gzip},
                                                                       {"deflate, gzip, br, zstd", gzip},
                                                                       {"gzip, deflate", gzip},
                                                                       {"deflate", deflate},
                                                                       {"gzip;q=0.5, deflate", deflate},
                                                                       {"gzip;q=0.5, deflate;q=0.501", deflate},
                                                                       {"gzip;q=0.501, deflate;q=0.5", gzip},
                                                                       {"gzip ; q=0, deflate;q=0.001", deflate},
                                                                       {"GZIP;Q=1", gzip},
                                                                       {"gzip;q=0", identity},
                                                                       {"gzip;q=0.0", identity},
                                                                       {"gzip;q=0.0001", identity},
                                                                       {"gzip;q=x", identity},
                                                                       {"gzip;q=", identity},
                                                                       {"gzip;p=1", identity},
                                                                       {"br, *, identity", identity},
                                                                       {",,;;=,gzip;q=9999999999999", identity}})
        EXPECT_EQ(accepted_coding(header), wanted) << header;
}

}  // namespace
}  // namespace accel::examples::serving::coding
