// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/framing.hpp"

#include <cstddef>

#include <boost/beast/core/string.hpp>

namespace accel::examples::serving::doors {

namespace http = boost::beast::http;

const char* framing_fault(const http::request<http::empty_body>& head) {
    const std::size_t codings = head.count(http::field::transfer_encoding);
    const std::size_t lengths = head.count(http::field::content_length);
    const auto length = head[http::field::content_length];
    if (lengths > 1 || length.find(',') != length.npos) return "a request may have only one Content-Length";
    if (codings == 0) return nullptr;
    if (codings > 1 || !boost::beast::iequals(head[http::field::transfer_encoding], "chunked"))
        return "this door knows no Transfer-Encoding except chunked, once";
    if (lengths > 0) return "a request may have a Content-Length or a Transfer-Encoding, not both";
    if (head.version() < 11) return "HTTP/1.0 has no Transfer-Encoding";
    return nullptr;
}

bool is_folded(std::string_view header) {
    return header.find("\r\n ") != header.npos || header.find("\r\n\t") != header.npos;
}

}  // namespace accel::examples::serving::doors
