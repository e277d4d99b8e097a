// SPDX-License-Identifier: Apache-2.0
// The targets of a worker while they change, against a plain map; and the names that a refusal lists.
#include "core/server/target_table.hpp"

#include "core/internals.hpp"
#include "core/nearest_names.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

/// A table, and what must be in it. A handler owns a token, which shows when the handler is destroyed.
class changing_table {
  public:
    using token = std::shared_ptr<int>;

    void add(const std::string& name) {
        const auto own = std::make_shared<int>(++made_);
        target_table::publication list = table_.changed(std::vector{std::make_shared<served_target>(
                                                            name, [own](exchange) {}, 0)},
                                                        {}, text(1));
        table_.publish(list);
        expected_[name] = own;
    }
    void remove(const std::string& name) {
        const std::uint32_t number = target_of(name).number;
        target_table::publication list = table_.changed({}, std::vector{number}, text(-1));
        table_.publish(list);
        gone_.push_back(expected_[name]);
        expected_.erase(name);
    }
    [[nodiscard]] bool has(const std::string& name) const { return expected_.contains(name); }
    /// A request that is with its handler from now on.
    void begin(const std::string& name) {
        served_target* const found = table_.find(target_of(name).number);
        ASSERT_EQ(found != nullptr, has(name)) << name;
        if (found == nullptr) return;
        ASSERT_EQ(found->name, name);
        target_table::hold(*found);
        open_.push_back({found, expected_[name]});
    }
    void end(std::size_t which) {
        table_.release(*open_[which].at);
        open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(which));
    }
    [[nodiscard]] std::size_t open() const { return open_.size(); }
    /// Handlers live while their targets are there or in use, and no longer.
    void check() {
        table_.adopt();
        EXPECT_EQ(table_.names(), made_ == 0 ? "" : std::to_string(expected_.size()));
        for (const auto& [at, alive] : open_) EXPECT_FALSE(alive.expired()) << at->name;
        const auto in_use = [this](const std::weak_ptr<int>& which) {
            return std::ranges::any_of(open_, [&](const use& each) { return each.alive.lock() == which.lock(); });
        };
        std::erase_if(gone_, [&](const std::weak_ptr<int>& each) { return each.expired(); });
        for (const std::weak_ptr<int>& each : gone_) EXPECT_TRUE(in_use(each)) << "a handler outlives its last user";
    }

  private:
    struct use {
        served_target* at;
        std::weak_ptr<int> alive;
    };
    [[nodiscard]] std::string text(int change) const {
        return std::to_string(static_cast<int>(expected_.size()) + change);
    }
    target_table table_;
    std::map<std::string, std::weak_ptr<int>> expected_;
    std::vector<std::weak_ptr<int>> gone_;
    std::vector<use> open_;
    int made_ = 0;
};

TEST(target_table_test, random_changes_and_requests_agree_with_a_map) {
    for (unsigned seed = 0; seed < 50; ++seed) {
        SCOPED_TRACE(seed);
        std::minstd_rand random(seed + 1);
        changing_table table;
        for (int step = 0; step < 300; ++step) {
            const std::string name = "model" + std::to_string(random() % 12);
            const auto what = random() % 8;
            if (what < 2)
                table.has(name) ? table.remove(name) : table.add(name);
            else if (what < 5)
                table.begin(name);
            else if (table.open() > 0)
                table.end(random() % table.open());
            if (step % 7 == 0) table.check();
            if (::testing::Test::HasFailure()) FAIL() << "step " << step;
        }
        while (table.open() > 0) table.end(0);
        table.check();
    }
}

TEST(nearest_names, distances_count_letters) {
    struct row {
        const char* one;
        const char* other;
        std::size_t distance;
    };
    for (const row& each : {row{"", "", 0},
                            {"a", "", 1},
                            {"resnet50", "resnet50", 0},
                            {"resnet50", "resnet5O", 1},
                            {"resnet50", "resnt50", 1},
                            {"resnet50", "resnet-50", 1},
                            {"bert", "brte", 2},
                            {"kitten", "sitting", 3},
                            {"abcd", "dcba", 4},
                            {"abcdefgh", "x", 4}}) {
        EXPECT_EQ(edit_distance(each.one, each.other, 4), each.distance) << each.one << ' ' << each.other;
        EXPECT_EQ(edit_distance(each.other, each.one, 4), each.distance) << each.other << ' ' << each.one;
    }
    EXPECT_EQ(edit_distance(std::string(100, 'a'), std::string(99, 'b'), 4), 4U);
}

/// Every way to change a letter or two of a word, against the definition.
TEST(nearest_names, distances_agree_with_their_definition) {
    std::minstd_rand random(5);
    const auto word = [&] {
        std::string out(random() % 9, 'a');
        for (char& each : out) each = static_cast<char>('a' + random() % 3);
        return out;
    };
    const auto defined = [](const auto& self, std::string_view a, std::string_view b) -> std::size_t {
        if (a.empty() || b.empty()) return a.size() + b.size();
        if (a.front() == b.front()) return self(self, a.substr(1), b.substr(1));
        return 1 +
               std::min({self(self, a.substr(1), b), self(self, a, b.substr(1)), self(self, a.substr(1), b.substr(1))});
    };
    for (int i = 0; i < 500; ++i) {
        const std::string one = word();
        const std::string other = word();
        EXPECT_EQ(edit_distance(one, other, 20), defined(defined, one, other)) << one << ' ' << other;
        EXPECT_EQ(edit_distance(one, other, 3), std::min<std::size_t>(3, defined(defined, one, other)));
    }
}

TEST(nearest_names, lists_name_what_is_there_as_far_as_there_is_room) {
    const std::vector<std::string_view> names{"bert", "resnet18", "resnet50", "yolo"};
    EXPECT_EQ(list_names({}, 100), "it has none");
    EXPECT_EQ(list_names(std::span(names).first(1), 100), "it has bert");
    EXPECT_EQ(list_names(names, 100), "it has bert, resnet18, resnet50 and yolo");
    EXPECT_EQ(list_names(names, 100, "resnet5O"), "it has resnet50, resnet18, bert and yolo");
    EXPECT_EQ(list_names(names, 30), "it has bert and 3 others");
    EXPECT_EQ(list_names(names, 0), "it has bert and 3 others") << "one at least";
    std::vector<std::string> long_names;
    for (int i = 0; i < 1024; ++i) long_names.push_back(std::string(60, 'm') + std::to_string(1000 + i));
    const std::vector<std::string_view> many(long_names.begin(), long_names.end());
    const std::string listed = list_names(many, 320, long_names[700]);
    EXPECT_TRUE(listed.starts_with("it has " + long_names[700] + ", ")) << listed;
    EXPECT_LE(listed.size(), 320U);
    EXPECT_TRUE(listed.ends_with(" others")) << listed;
}

}  // namespace
}  // namespace accel::core
