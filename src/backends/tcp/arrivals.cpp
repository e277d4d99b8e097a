// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/arrivals.hpp"

#include "core/control/data_preamble.hpp"

#include <utility>

namespace accel::tcp {
namespace {

result<core::data_connection> admit(const connection_terms& agreed, core::data_connection& made) {
    if (agreed.encrypted != (made.tls != nullptr))
        return error{status::unauthorized, 0, "it is not encrypted as agreed"};
    if (!core::answer_data(made, status::ok, {}))
        return error{status::peer_lost, 0, "its answer could not be sent; its client tries again"};
    return std::move(made);
}

}  // namespace

result<void> arrivals::take(core::data_connection& made) {
    return take_if(made, admit);
}

}  // namespace accel::tcp
