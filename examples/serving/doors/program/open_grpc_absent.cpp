// SPDX-License-Identifier: Apache-2.0
// A build without gRPC C++.
#include "serving/doors/program/opened_doors.hpp"

namespace accel::examples::serving::doors {

bool has_grpc() noexcept {
    return false;
}

std::unique_ptr<opened_door> open_grpc(boost::asio::io_context&, boost::asio::ip::tcp::acceptor, model_table&,
                                       const door_settings&, const door_access&) {
    return nullptr;
}

}  // namespace accel::examples::serving::doors
