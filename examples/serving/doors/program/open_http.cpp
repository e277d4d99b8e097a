// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/http_door.hpp"
#include "serving/doors/program/opened_doors.hpp"

#include <utility>

namespace accel::examples::serving::doors {
namespace {

class opened_http final : public opened_door {
  public:
    opened_http(boost::asio::io_context& loop, boost::asio::ip::tcp::acceptor at, model_table& models,
                const door_settings& settings, door_access access)
        : door_(loop, std::move(at), models, settings, std::move(access)) {}

    result<void> start() override { return door_.start(); }
    std::string endpoint() const override { return door_.endpoint(); }
    void stop(std::function<void()> done) override { door_.stop(std::move(done)); }
    door_summary summary() const override {
        const door_counts& seen = door_.counts();
        return {seen.connections, seen.requests, seen.errors, seen.cancelled};
    }
    const door_metrics& metrics() const override { return door_.metrics(); }

  private:
    http_door door_;
};

}  // namespace

std::unique_ptr<opened_door> open_http(boost::asio::io_context& loop, boost::asio::ip::tcp::acceptor at,
                                       model_table& models, const door_settings& settings, const door_access& access) {
    return std::make_unique<opened_http>(loop, std::move(at), models, settings, access);
}

}  // namespace accel::examples::serving::doors
