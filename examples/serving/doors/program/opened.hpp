// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/program/opened_doors.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace accel::examples::serving::doors {

/// A program's door that is a `Door`.
template <typename Door>
class opened final : public opened_door {
  public:
    opened(boost::asio::io_context& loop, boost::asio::ip::tcp::acceptor at, model_table& models,
           const door_settings& settings, const door_access& access)
        : door_(loop, std::move(at), models, settings, access) {}

    result<void> start() override { return door_.start(); }
    std::string endpoint() const override { return door_.endpoint(); }
    void renew(const door_access& access) override { door_.renew(access); }
    void leave() override { door_.leave(); }
    void stop(std::function<void()> done) override { door_.stop(std::move(done)); }
    door_summary summary() const override {
        const door_counts& seen = door_.counts();
        return {door_.metrics().connections.load(), seen.requests, seen.errors, seen.cancelled};
    }
    const door_metrics& metrics() const override { return door_.metrics(); }

  private:
    Door door_;
};

}  // namespace accel::examples::serving::doors
