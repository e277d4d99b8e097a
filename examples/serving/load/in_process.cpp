// SPDX-License-Identifier: Apache-2.0
#include "serving/load/in_process.hpp"

#include "serving/model_server/model_registry.hpp"

#include <accel_transport/server.hpp>

#include <optional>

namespace accel::examples::serving {
namespace {

class registry_server final : public in_process_server {
  public:
    registry_server(context& ctx, const settings& chosen) : models_(ctx, place_of(chosen), serving_of(chosen)) {}

    result<void> open(context& ctx, const settings& chosen) {
        auto specs = specs_of(chosen);
        if (!specs) return specs.error();
        for (const model_spec& each : *specs)
            if (auto loaded = models_.load(each); !loaded) return loaded.error();
        auto server = server::listen(ctx, chosen.uris, models_.services(), options_of(chosen));
        if (!server) return server.error();
        server_.emplace(std::move(server).value());
        return {};
    }
    std::vector<std::string> endpoints() const override { return server_->endpoints(); }

  private:
    model_registry models_;
    std::optional<server> server_;  ///< last: it uses the models
};

}  // namespace

result<std::unique_ptr<in_process_server>> in_process_server::start(context& ctx, const settings& chosen) {
    if (chosen.contexts > 1 || chosen.on == execution::gpu_resident)
        return error{status::unsupported, 0, "only model_server serves from several processes, or from the GPU itself"};
    if (const std::string wrong = contradiction_in(chosen); !wrong.empty())
        return error{status::invalid_argument, 0, wrong};
    auto made = std::make_unique<registry_server>(ctx, chosen);
    if (auto good = made->open(ctx, chosen); !good) return good.error();
    return std::unique_ptr<in_process_server>{std::move(made)};
}

}  // namespace accel::examples::serving
