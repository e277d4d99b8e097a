// SPDX-License-Identifier: Apache-2.0
#include "core/registry.hpp"

#include "backends/gpu/backend.hpp"
#include "backends/local/backend.hpp"
#include "backends/rdma/backend.hpp"
#include "backends/tcp/backend.hpp"
#include "backends/zmq/backend.hpp"
#include "core/left_out_backend.hpp"

namespace accel::core {
namespace {

using backends = std::vector<std::unique_ptr<backend>>;

void add_verbs_backends([[maybe_unused]] context_state& context, backends& all) {
#if ACCEL_VERBS
    all.push_back(rdma::make_backend(context, {.name = "gdr", .fills_gpus = true}));
    all.push_back(rdma::make_backend(context, {.name = "rdma", .fills_gpus = false}));
    all.push_back(gpu::make_backend(context, rdma::make_backend(context, {.name = "gpu", .fills_gpus = false})));
#else
    for (const char* scheme : {"gdr", "rdma", "gpu"}) all.push_back(make_left_out_backend(scheme, "ACCEL_VERBS"));
#endif
}

std::unique_ptr<backend> zmq_backend([[maybe_unused]] context_state& context) {
#if ACCEL_ZMQ
    return zmq::make_backend(context);
#else
    return make_left_out_backend("zmq", "ACCEL_ZMQ");
#endif
}

}  // namespace

std::vector<std::unique_ptr<backend>> make_backends(context_state& context) {
    backends all;
    all.push_back(local::make_backend(context));
    add_verbs_backends(context, all);
    all.push_back(tcp::make_backend(context));
    all.push_back(zmq_backend(context));
    return all;
}

}  // namespace accel::core
