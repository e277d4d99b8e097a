// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/context_state.hpp"
#include "core/internals.hpp"
#include "device/client_rig.hpp"
#include "kernels/kernel_host.hpp"
#include "patience.hpp"
#include "rdma/bare_client.hpp"

#include <memory>

namespace accel::tests {

using rdma::testing::bare_client;  // of either role

/// A channel of a GPU, and a server made of bare verbs.
class bare_server_rig {
  public:
    static constexpr core::link_geometry shape{2, 256, 256};

    bare_server_rig(gpu_engine engine, service_sharing sharing) : exclusive_(sharing == service_sharing::exclusive) {
        core::poller_options wanted;
        wanted.role = core::link_role::client;
        wanted.host = "127.0.0.1";
        wanted.verbs.ack_timeout = 1ms;
        wanted.verbs.ack_retries = 2;
        gpu::kernel_setup kernels{nullptr, nullptr, 1, shape, 10s};
        kernels.options.engine = engine;
        kernels.options.sharing = sharing;
        poller = dynamic_cast<gpu::kernel_backend&>(backend_).open_client(wanted, kernels).value();
        core::link_config config;
        config.geometry = shape;
        link = poller->open_connection(config).value();
    }
    [[nodiscard]] result<void> attach() const {
        server->connect(link->describe());
        return link->attach({1, {}, {}, server->describe()}, core::deadline_after(patience(5s)));
    }
    /// As a correct server gives it, to be spoilt.
    [[nodiscard]] bare_client::request answer_to(const device::call_ref& call) const {
        auto out = server->correct(call.slot);
        out.header.kind = core::message_kind::response;
        out.header.generation = call.generation;
        out.header.response_room = 0;
        if (exclusive_) {
            out.operation = mlx5::opcode::write;
            out.header.arrival_word = call.generation;
            out.repeats_generation = false;
        }
        return out;
    }

  private:
    const bool exclusive_;
    context context_ = context::open({.log = log_level::off}).value();
    core::backend& backend_ = *core::internals::state_of(context_)->find_backend("gpu");

  public:
    std::unique_ptr<bare_client> server = std::make_unique<bare_client>(shape);
    std::unique_ptr<gpu::kernel_client> poller;
    std::unique_ptr<core::connection> link;
};

}  // namespace accel::tests
