// SPDX-License-Identifier: Apache-2.0
// Whole connections to the doors.
#include "seeds.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace accel::tests {
namespace {

using namespace std::string_literals;

std::string request(const std::string& line, const std::string& fields = {}, const std::string& version = "1.1") {
    return line + " HTTP/" + version + "\r\nHost: a\r\n" + fields + "\r\n";
}

std::string post(const std::string& path, const std::string& body, const std::string& fields = {},
                 const std::string& version = "1.1") {
    return request("POST /v2/" + path, "Content-Length: " + std::to_string(body.size()) + "\r\n" + fields, version) +
           body;
}

const std::string twice = post("models/twice/infer", R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2],
"data":[1,2]}]})");
const std::string words = R"({"text_input":"abc"})";

/// A request whose two numbers follow its JSON as bytes.
std::string binary() {
    const std::string json = R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2],
"parameters":{"binary_data_size":8}}],"parameters":{"binary_data_output":true}})";
    return post("models/twice/infer", json + std::string(8, '\0'),
                "Inference-Header-Content-Length: " + std::to_string(json.size()) + "\r\n");
}

}  // namespace

/// How the client ends, where its bytes are cut, and the bytes.
void http_door_seeds(const seed_folder& to) {
    to.add("pipelined", "\0\1"s + twice + binary() + request("GET /v2") + twice);
    to.add("documents", "\0\5"s + request("HEAD /v2/models/twice") + request("GET /v2/health/ready") +
                            request("GET /v2/models/same/config") + request("GET /v2/models/stats"));
    to.add("strings", "\1\202"s + post("models/same/infer", R"({"id":"7","inputs":[{"name":"s","datatype":"BYTES",
"shape":[2],"data":["x","\u00e9"]},{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]})"));
    to.add("failing", "\0\1"s + post("models/twice/infer", R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2],
"data":[-1,2]}]})") + twice);
    to.add("parts", "\0\3"s + post("models/words/generate_stream", words) +
                        post("models/words/generate", R"({"text_input":"a"})") + post("models/words/generate", words));
    to.add("parts_of_1_0", "\0\3"s + post("models/words/generate_stream", words, {}, "1.0"));
    to.add("expecting", "\0\3"s + post("models/words/generate", R"({"text_input":"a"})", "Expect: 100-continue\r\n"));
    to.add("chunked", "\0\1"s + request("POST /v2/models/twice/infer", "Transfer-Encoding: chunked\r\n") +
                          "2\r\n{}\r\n0\r\n\r\n" + twice);
    to.add("smuggled",
           "\0\1"s + request("GET /v2", "Transfer-Encoding: xchunked\r\nContent-Length: 4\r\n") + "0\r\n\r\n");
    to.add("compressed", "\0\1"s + post("models/twice/infer", "\x1f\x8b\x08"s, "Content-Encoding: gzip\r\n") + twice);
    to.add("without_host", "\0\1"s + "GET /v2 HTTP/1.1\r\n\r\nGET http://a/v2 HTTP/1.1\r\nHost: a\r\n\r\n");
    // In a part of the header that the parser takes before the rest.
    to.add("folded", "\0\343"s + request("GET /v2", "X: a\r\n b\r\nY: " + std::string(23, 'c') + "\r\n"));
    // Of some bytes more than a header may have, and fewer without the first line.
    to.add("header_of_8_kib", "\0\201"s + request("GET /v2", "A: " + std::string(8'160, 'a') + "\r\n"));
    to.add("regions", "\0\1"s + request("GET /v2/systemsharedmemory/status") +
                          post("systemsharedmemory/region/r/register", R"({"key":"k","offset":0,"byte_size":8})"));
    to.add("long_header", "\0\201"s + request("GET /v2", "A: " + std::string(9'000, 'a') + "\r\n"));
    to.add("left", "\3\1"s + twice + twice.substr(0, twice.size() - 4));
    to.add("reset", "\2\1"s + twice + "GET /v2 HT");
    to.add("handshake", "\0\1\x16\3\1\2\0\1\0\1\xfc\3\3"s);
}

namespace {

/// A step: what it is, its flags, its stream, and what else it takes.
std::string step(char what, char flags, char stream, const std::string& more) {
    return std::string{what, flags, stream} + more;
}

std::string sized(const std::string& text) {
    return static_cast<char>(text.size()) + text;
}

constexpr char ends = 1;  // the stream

}  // namespace

/// 1: begins as HTTP/2 does; then steps.
void grpc_door_seeds(const seed_folder& to) {
    const std::string infer = "\n\5twice*\f\n\1x\x12\4FP32\x1a\1\2:\10" + std::string(8, '\0');
    const std::string call = step(1, 0, 1, "\0"s);
    const std::string stream = step(1, 0, 3, "\1");
    to.add("infer", "\1" + call + step(2, ends, 1, sized(infer)));
    to.add("infer_in_pieces", "\1" + call + step(7, 0, 1, "\0"s + sized(infer)) + step(3, ends, 1, sized("abc")));
    to.add("failing", "\1" + call +
                          step(2, ends, 1,
                               sized("\n\1m\x12\1"
                                     "7")));
    to.add("stream", "\1" + stream + step(2, 0, 3, sized(infer)) + step(2, 0, 3, sized(infer)) +
                         step(2, ends, 3, sized("\n\5words")));
    to.add("documents", "\1" + step(1, 0, 1, "\2") + step(2, ends, 1, sized("\n\5twice")) + step(1, 0, 3, "\3") +
                            step(2, ends, 3, sized("")));
    to.add("health", "\1" + step(1, 0, 1, "\4") + step(2, ends, 1, sized("")) + step(1, 0, 3, "\5") +
                         step(2, ends, 3, sized("\n\5twice")));
    to.add("compressed", "\1" + call + step(7, ends, 1, "\1" + sized(infer)));
    to.add("reset", "\1" + call + step(4, 0, 1, "\3" + sized("\0\0\0\10"s)) + stream);
    to.add("headers", "\1" + step(0, 0, 1, "\0"s + sized("\0\1a\1b"s)) + step(4, 4, 1, "\11" + sized("\0\1a\1b"s)));
    to.add("windows", "\1" + step(4, 0, 0, "\10" + sized("\x7f\xff\xff\xff")) +
                          step(4, 0, 0, "\4" + sized("\0\3\0\0\0\1"s)) + step(4, 0, 0, "\6" + sized("12345678")) +
                          step(4, 0, 0, "\7" + sized(std::string(8, '\0'))));
    to.add("wrong_length", "\1" + call + step(5, 0, 1, "\0\5"s + sized("abc")));
    to.add("http_1", "\0"s + step(6, 0, 0, sized("GET / HTTP/1.1\r\n\r\n")));
    to.add("unknown", "\1" + step(1, 0, 1, "\6") + step(4, 0, 1, "\13" + sized("x")));
}

}  // namespace accel::tests
