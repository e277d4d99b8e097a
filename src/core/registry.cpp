#include "core/registry.hpp"

#include "backends/gdr/backend.hpp"
#include "backends/gpu/backend.hpp"
#include "backends/local/backend.hpp"
#include "backends/rdma/backend.hpp"
#include "backends/tcp/backend.hpp"
#include "backends/zmq/backend.hpp"

namespace accel::core {

std::vector<std::unique_ptr<backend>> make_backends(context_state& context) {
    std::vector<std::unique_ptr<backend>> all;
    all.push_back(local::make_backend(context));
    all.push_back(gdr::make_backend(context));
    all.push_back(rdma::make_backend(context));
    all.push_back(gpu::make_backend(context));
    all.push_back(tcp::make_backend(context));
    all.push_back(zmq::make_backend(context));
    return all;
}

}  // namespace accel::core
