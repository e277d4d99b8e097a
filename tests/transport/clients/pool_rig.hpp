// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "client_rig.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace accel::tests {

class pools : public client_rig {
  protected:
    [[nodiscard]] channel_pool pool_to(const std::string& uri, const pool_options& limits = {}) {
        auto made = channel_pool::open(ctx, uri, client_options(), limits);
        EXPECT_TRUE(made) << made.error().message;
        return std::move(made).value();
    }
    [[nodiscard]] static std::string ask(channel_pool& pool, std::string_view text = {}) {
        auto answer = pool.call(bytes_of(text));
        return answer ? text_of(answer->response) : std::string{to_string(answer.code())};
    }
    static void in_threads(std::size_t count, const std::function<void(std::size_t)>& body) {
        std::vector<std::thread> all;
        for (std::size_t i = 0; i < count; ++i) all.emplace_back(body, i);
        for (std::thread& each : all) each.join();
    }
};

}  // namespace accel::tests
