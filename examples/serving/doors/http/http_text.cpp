// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/http_text.hpp"

namespace accel::examples::serving::doors {

std::span<const status_name> http_statuses() noexcept {
    static constexpr status_name all[] = {
        {200, "200"}, {400, "400"}, {401, "401"}, {404, "404"}, {405, "405"}, {408, "408"}, {411, "411"}, {413, "413"},
        {415, "415"}, {417, "417"}, {429, "429"}, {431, "431"}, {501, "501"}, {503, "503"}, {504, "504"}, {500, "500"}};
    return all;
}

std::string_view reason_of(int http_status) noexcept {
    switch (http_status) {
        case 200:
            return "OK";
        case 400:
            return "Bad Request";
        case 401:
            return "Unauthorized";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 408:
            return "Request Timeout";
        case 411:
            return "Length Required";
        case 413:
            return "Content Too Large";
        case 415:
            return "Unsupported Media Type";
        case 417:
            return "Expectation Failed";
        case 429:
            return "Too Many Requests";
        case 431:
            return "Request Header Fields Too Large";
        case 501:
            return "Not Implemented";
        case 503:
            return "Service Unavailable";
        case 504:
            return "Gateway Timeout";
        default:
            return "Internal Server Error";
    }
}

std::string header_text(const answer_header& of) {
    std::string out = "HTTP/1.1 " + std::to_string(of.http_status) + ' ';
    out += reason_of(of.http_status);
    out += "\r\nContent-Length: " + std::to_string(of.body_bytes) + "\r\n";
    if (of.body_bytes > 0) {
        out += of.json_bytes > 0 ? "Content-Type: application/octet-stream\r\n" : "Content-Type: application/json\r\n";
        if (of.json_bytes > 0) out += "Inference-Header-Content-Length: " + std::to_string(of.json_bytes) + "\r\n";
    }
    if (of.http_status == 429 || of.http_status == 503) out += "Retry-After: 1\r\n";
    out += of.more;
    out += of.keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
    return out;
}

std::string event_header_text(bool chunked, bool keep_alive) {
    std::string out =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n";
    if (chunked) out += "Transfer-Encoding: chunked\r\n";
    out += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
    return out;
}

}  // namespace accel::examples::serving::doors
