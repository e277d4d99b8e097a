// SPDX-License-Identifier: Apache-2.0
#include "core/left_out_backend.hpp"

#include <fmt/format.h>

namespace accel::core {
namespace {

class left_out_backend final : public backend {
  public:
    left_out_backend(std::string_view scheme, std::string_view option) : scheme_(scheme), option_(option) {}
    [[nodiscard]] std::string_view scheme() const noexcept override { return scheme_; }
    [[nodiscard]] probe_result probe() override { return {false, reason()}; }
    [[nodiscard]] result<std::unique_ptr<poller>> open_poller(const poller_options&) override {
        return error{status::unsupported, 0, reason()};
    }

  private:
    [[nodiscard]] std::string reason() const {
        return fmt::format("left out of this build; configure it with -D{}=ON", option_);
    }
    std::string_view scheme_;
    std::string_view option_;
};

}  // namespace

std::unique_ptr<backend> make_left_out_backend(std::string_view scheme, std::string_view option) {
    return std::make_unique<left_out_backend>(scheme, option);
}

}  // namespace accel::core
