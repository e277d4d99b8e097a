// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>

namespace accel::examples::serving::doors {

/// Why two readers may find different ends of a request: it gets 400, and its connection ends (RFC 9112, 6.3). Null:
/// its end is clear. The parser has looked at the syntax of each field before.
[[nodiscard]] const char* framing_fault(const boost::beast::http::request<boost::beast::http::empty_body>& head);

/// A value of the header goes on in the next line, which may look like a field of its own to another reader.
[[nodiscard]] bool is_folded(std::string_view header);

}  // namespace accel::examples::serving::doors
