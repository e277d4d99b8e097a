// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace accel::examples::serving::coding {

/// How a body or a message is compressed. `deflate` is zlib's format, as HTTP and gRPC say.
enum class content_coding : std::uint8_t { identity, gzip, deflate };

/// "gzip", "x-gzip", "deflate" or "identity", in any case; empty: identity. Nothing for other names.
[[nodiscard]] std::optional<content_coding> coding_of(std::string_view name) noexcept;

/// "gzip".
[[nodiscard]] std::string_view name_of(content_coding one) noexcept;

/// What a client with this Accept-Encoding likes best; gzip before deflate, and both before identity, which nobody can
/// refuse here.
[[nodiscard]] content_coding accepted_coding(std::string_view header) noexcept;

}  // namespace accel::examples::serving::coding
