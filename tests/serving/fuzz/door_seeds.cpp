// SPDX-License-Identifier: Apache-2.0
// What clients of other protocols send to a door, what a model's server answers, and a door's own files.
#include "seeds.hpp"

#include <accel_transport/tensor.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace accel::tests {

namespace {

/// The length of the body, the header field that splits it, and the path or the JSON.
std::string request_of(std::uint64_t body_bytes, const std::string& field, const std::string& text) {
    std::string out;
    for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>((body_bytes >> shift) & 0xff);
    return out + static_cast<char>(field.size()) + field + text;
}

}  // namespace

void oip_seeds(const seed_folder& to) {
    const std::string a = R"({"name":"a","datatype":"FP32","shape":[1,2],)";
    const std::string b = R"({"name":"b","datatype":"UINT8","shape":[3],)";
    const std::string bytes_of_b = R"("parameters":{"binary_data_size":3}})";
    // `binary` bytes of tensors behind the JSON.
    const auto add = [&to](const std::string& name, std::uint64_t binary, const std::string& text) {
        to.add(name, request_of(text.size() + binary, binary == 0 ? "" : std::to_string(text.size()), text));
    };
    add("numbers", 0,
        R"({"id":"7","inputs":[)" + a + R"("data":[[1.5,-2]]},)" + b +
            R"("data":[0,255,7]}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]})");
    add("mixed", 3,
        R"({"inputs":[)" + a + R"("data":[1e3,2]},)" + b + bytes_of_b +
            R"(],"parameters":{"binary_data_output":true,"timeout":1000}})");
    add("binary", 11, R"({"inputs":[)" + b + bytes_of_b + ',' + a + R"("parameters":{"binary_data_size":8}}]})");
    add("huge", 3, R"({"inputs":[)" + a + R"("shape":[9223372036854775808,-1],"data":[]}]})");
    add("deep", 0, std::string(40, '['));
    const std::string open = R"({"name":"a","datatype":"FP32","shape":[3,2],)";
    const std::string strings = R"({"name":"b","datatype":"BYTES","shape":[2],)";
    add("open_in_json", 0,
        R"({"inputs":[)" + open + R"("data":[[1,2],[3,4],[5,6e-1]]},)" + strings + R"("data":["x","\u00e9\n"]}]})");
    add("open_binary", 35,
        R"({"inputs":[)" + open + R"("parameters":{"binary_data_size":24}},)" + strings +
            R"("parameters":{"binary_data_size":11}}]})");
    add("fields", 0, R"({"a":[1,2,3,4],"b":["x","y"],"id":"7"})");
    add("many", 0, R"({"inputs":[)" + open + R"("shape":[4294967295,2],"data":[[[[[[1,2]]]]]]}]})");
    add("path", 0, "/v2/models/a%2fb/versions/1/infer?x=y");
    to.add("raw", request_of(200, "0", ""));
    to.add("length_of_64_bits", request_of(~std::uint64_t{0}, "1", "{}"));
    to.add("header_beyond_the_body", request_of(10, "18446744073709551615", "{}"));
    to.add("header_is_no_number", request_of(10, "-1", "{}"));
}

namespace {

std::string of_hex(std::string_view hex) {
    std::string out;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        out += static_cast<char>(std::stoi(std::string{hex.substr(i, 2)}, nullptr, 16));
    return out;
}

/// Serialised by protobuf; the first byte is the length of the slices.
std::string message_of(std::string_view hex) {
    return '\2' + of_hex(hex);
}

}  // namespace

/// The coding, the length of pieces, the limit, and the bytes.
void coding_seeds(const seed_folder& to) {
    to.add("gzip", of_hex("00ff40"
                          "1f8b08000000000002032b49cd2bce2f2a562819a434009ca7a6f1a0000000"));
    to.add("deflate", of_hex("010740"
                             "789c2b49cd2bce2f2a562819a4340015043f99"));
    to.add("cut", of_hex("00ff40"
                         "1f8b08000000000002032b49cd2bce2f2a562819a434009ca7"));
    to.add("bomb", of_hex("00ff40"
                          "1f8b0800000000000203edc1010d000000c2a0f74f6d0f071400000000000000000000000000000000000000"
                          "00000000000000000000000000000000000000000000000000000000004f0625b3b71650c30000"));
}

void oip_message_seeds(const seed_folder& to) {
    to.add("raw", message_of("0a016d1201311a0137220e0a0774696d656f7574120310dc0b2a0d0a01611204465033321a0201022a0c"
                             "0a01621204494e54381a010332030a01793a080000c03f000000c03a0301ff07"));
    to.add("typed", message_of("0a016d2a250a01621204494e54381a01032a17121501ffffffffffffffffff0180ffffffffffffffff01"
                               "2a190a01611204465033321a0201022a0a32080000c03f000000c0"));
    // a = FP32 [2,2] and b = BYTES [2] as contents; then as raw contents, of which the last string is cut.
    to.add("open", message_of("0a016d2a210a01611204465033321a0202022a1232100000803f0000004000004040000080402a160a016212"
                              "0542595445531a01022a074201784202797a"));
    to.add("cut_strings",
           message_of("0a016d2a0d0a01611204465033321a0201022a0d0a0162120542595445531a01023a080000803f000000403a"
                      "0b010000007809000000797a"));
    to.add("named", message_of("0a016d120131"));
    // ServerReflectionRequest: a file, a symbol, an extension, a type, all services.
    to.add("reflected_file", message_of("1a12677270635f736572766963652e70726f746f"));
    to.add("reflected_symbol", message_of("221a696e666572656e63652e4d6f64656c436f6e6669672e6e616d65"));
    to.add("reflected_extension", message_of("0a01682a050a016d1001"));
    to.add("reflected_type", message_of("3215696e666572656e63652e4d6f64656c436f6e666967"));
    to.add("reflected_services", message_of("3a00"));
    to.add("group", message_of("0b1308011a0178140c1001"));
    to.add("long", message_of("0a016d3affffffffffffffffff0161"));
    to.add("negative", message_of("0a016d2a160a016112044650333218011affffffffffffffffff01"));
}

namespace {

/// Four outputs, FP32 [2], FP16 [1,3], INT64 [1] and BOOL [5], as a server describes them.
std::vector<tensor> four_outputs() {
    std::vector<tensor> out{{{type_code::floating, 32, 1}, 1, 0, {2}},
                            {{type_code::floating, 16, 1}, 2, 64, {1, 3}},
                            {{type_code::signed_integer, 64, 1}, 1, 128, {1}},
                            {{type_code::boolean, 8, 1}, 1, 192, {5}}};
    return out;
}

/// `bits`: an output that is left out (0 to 3), or wanted as bytes (4 to 7).
bytes answer_of(const std::vector<tensor>& described, std::uint8_t bits, const std::string& id, std::size_t payload) {
    bytes out{static_cast<std::uint8_t>(described.size())};
    for (const tensor& each : described) append(out, each);
    out.push_back(bits);
    out.push_back(static_cast<std::uint8_t>(id.size()));
    out.insert(out.end(), id.begin(), id.end());
    out.resize(out.size() + payload, 1);
    return out;
}

}  // namespace

void oip_answer_seeds(const seed_folder& to) {
    to.add("numbers", answer_of({}, 0, "7", 197));
    to.add("bytes", answer_of({}, 0xf0, "", 197));
    to.add("described", answer_of(four_outputs(), 0xa2, "an id", 197));
    to.add("too_short", answer_of({}, 0, "", 196));
    auto other = four_outputs();
    other[1].shape[1] = 0;
    to.add("nothing_in_one", answer_of(other, 0, "", 197));
    other[0].shape[0] = 0xffffffff;
    to.add("beyond_the_payload", answer_of(other, 0, "", 197));
    other.pop_back();
    to.add("too_few", answer_of(other, 0, "", 197));
    to.add("id_is_no_text", answer_of({}, 0, "\xff\xc0\"\\\n", 197));
    tensor numbers{{type_code::floating, 32, 1}, 2, 64, {2, 2}};
    tensor strings{{type_code::unsigned_integer, 8, 1}, 1, 80, {10}};
    auto open = answer_of({numbers, strings}, 0, "", 90);
    std::fill_n(open.end() - 90, 90, std::uint8_t{0});
    to.add("open", open);
    auto nan = answer_of({}, 0, "", 197);
    std::fill_n(nan.end() - 197, 64, std::uint8_t{0xff});
    to.add("not_a_number", nan);
}

void configuration_seeds(const seed_folder& to) {
    to.add("all", std::string{R"({"http":"0.0.0.0:8000","metrics":"127.0.0.1:8002","insecure":true, // a comment
"tls":{"certificate":"door.pem","key":"/door.key"},"tokens":"tokens","limits":{"connections":7,"json_bytes":1024,
"json_memory":2048,"idle_timeout":"1s","handshake_timeout":"2m","head_timeout":"3ms","body_timeout":"4s",
"slot_timeout":"5s","write_timeout":"6s","drain_timeout":"7s","regions":3,"region_bytes":4096},
"shared_memory":"system","models":{"digits":"tcp://a:1","mine":{"uri":"gdr://b:2",
"target":"other","inputs":[{"name":"x","datatype":"BYTES","shape":[-1,8],"max_bytes":64}],
"outputs":[{"name":"y","datatype":"INT64","shape":[1]}]}}})"});
    to.add("nothing", std::string{"{}"});
    to.add("twice", std::string{R"({"models":{"a":"tcp://a:1","a":"tcp://b:1"}})"});
    to.add("unknown", std::string{R"({"limits":{"conections":7}})"});
    to.add("half_a_tls", std::string{R"({"tls":{"certificate":"a"}})"});
    to.add("no_server", std::string{R"({"models":{"a":{"inputs":[]}}})"});
    to.add("huge_number", std::string{R"({"limits":{"connections":18446744073709551616}})"});
    to.add("huge_duration", std::string{R"({"limits":{"idle_timeout":"99999999999999999999h"}})"});
    to.add("huge_shape", std::string{R"({"models":{"a":{"uri":"u","inputs":[{"name":"x","datatype":"FP32",
"shape":[9223372036854775807,9223372036854775807]}],"outputs":[]}}})"});
    to.add("deep", std::string(40, '['));
    to.add("cut", std::string{R"({"models":{"a")"});
}

/// The length of what a client sends, which stands in front of the file.
void token_file_seeds(const seed_folder& to) {
    const auto add = [&to](const std::string& name, const std::string& given, const std::string& text) {
        to.add(name, static_cast<char>(given.size()) + given + text);
    };
    add("two", "b2", "# a comment\n\n  a1 \r\nb2");
    add("unknown", "c3", "a1\n");
    add("part_of_one", "a", "abc\n");
    add("longest", std::string(255, 'x'), std::string(256, 'x'));
    add("too_long", std::string(255, 'x'), std::string(257, 'x'));
    add("not_visible", "a", "a\x01\n");
    add("none", "a", "# nobody\n");
    add("empty", "", "");
}

}  // namespace accel::tests
