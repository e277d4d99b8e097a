// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/server.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace accel::examples::digits {

/// host, cuda:0 …; nothing for anything else.
[[nodiscard]] std::optional<memory_kind> parse_memory(std::string_view text);
[[nodiscard]] std::string to_text(memory_kind memory);

/// What `--memory` takes: host, cuda:0 … or auto. A sentence about what is wrong, or nothing.
[[nodiscard]] std::string check_memory_option(const std::string& text);

/// Where digits are recognised, and why there.
struct service_place {
    memory_kind memory;
    std::string reason;
};

/// Of an option as checked: a GPU by name has to be usable; `auto` is cuda:0 where its memory can be had and
/// the kernels run, else the host. May block.
[[nodiscard]] result<service_place> choose_place(context& ctx, std::string_view option);

/// The service for that memory.
[[nodiscard]] result<handler> make_service(memory_kind memory, const server_options& options);

}  // namespace accel::examples::digits
