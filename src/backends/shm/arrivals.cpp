// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/arrivals.hpp"

#include "core/control/data_preamble.hpp"

#include <array>
#include <cerrno>
#include <span>
#include <utility>

namespace accel::shm {

/// Its memory goes to whoever shows the token, and to nobody else.
result<core::unique_fd> arrivals::admit(const memory_offer& own, core::data_connection& made) const {
    const std::array all{own.requests.get(), own.responses.get(), page_, own.gpu_requests.get(),
                         own.gpu_responses.get()};
    const std::size_t passed = own.gpu_responses.open() ? all.size() : always_passed;
    if (!send_descriptors(made.socket.get(), core::encode_data_answer(status::ok, {}), std::span(all).first(passed)))
        return error{status::system_error, errno, "its shared memory could not be passed"};
    return std::move(made.socket);
}

result<void> arrivals::take(core::data_connection& made) {
    return take_if(made, [this](const memory_offer& own, core::data_connection& from) { return admit(own, from); });
}

}  // namespace accel::shm
