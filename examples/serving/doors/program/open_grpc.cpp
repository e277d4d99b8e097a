// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/door/grpc_door.hpp"
#include "serving/doors/program/opened.hpp"

#include <utility>

namespace accel::examples::serving::doors {

bool has_grpc() noexcept {
    return true;
}

std::unique_ptr<opened_door> open_grpc(boost::asio::io_context& loop, boost::asio::ip::tcp::acceptor at,
                                       model_table& models, const door_settings& settings, const door_access& access) {
    return std::make_unique<opened<grpc_door>>(loop, std::move(at), models, settings, access);
}

}  // namespace accel::examples::serving::doors
