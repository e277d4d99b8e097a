// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/generate.hpp"

#include "serving/doors/grpc/stream_messages.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::oip {
namespace {

/// A text of 8 bytes, two numbers and one number; outputs likewise.
model_description generator() {
    return read_description(R"({"name":"g","decoupled":true,
        "inputs":[{"name":"prompt","datatype":"UINT8","shape":[8],"text":true},
                  {"name":"pair","datatype":"FP32","shape":[2]},{"name":"seed","datatype":"INT32","shape":[1]}],
        "outputs":[{"name":"text","datatype":"UINT8","shape":[8],"text":true},
                   {"name":"pair","datatype":"FP32","shape":[2]},{"name":"count","datatype":"INT32","shape":[]}]})")
        .value();
}

std::string generate_refusal(const std::string& text) {
    const auto model = generator();
    const auto sentence = [](const error& why) { return std::to_string(http_status_of(why.code)) + ' ' + why.message; };
    auto read = read_generate(text, model);
    if (!read) return sentence(read.error());
    const auto inputs = read_json_inputs(read.value(), model);
    return inputs ? "taken" : sentence(inputs.error());
}

TEST(oip_generate, a_text_is_filled_up_with_zeros) {
    const auto model = generator();
    const std::string text = R"({"seed":[-5],"pair":[1,2],"prompt":"h\u00e9","parameters":{"timeout":1000}})";
    auto read = read_generate(text, model);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->timeout, std::chrono::milliseconds{1});
    std::vector<std::byte> room(model.input_bytes, std::byte{0xee});
    ASSERT_TRUE(read_json_inputs(read.value(), model));
    write_json_inputs(read.value(), room);
    EXPECT_EQ(std::memcmp(room.data(), "h\xc3\xa9\0\0\0\0\0", 8), 0);
}

TEST(oip_generate, each_mistake_has_a_sentence) {
    const std::string rest = R"("pair":[1,2],"seed":1,"prompt":"12345678")";
    constexpr const char* two = "400 input 'pair': the data does not have the 2 elements of the shape";
    const std::string long_field = R"(,"a":")" + std::string(70'000, 'a') + '"';
    for (const auto& [text, said] : std::vector<std::pair<std::string, std::string>>{
             {"[]", "400 the request is not a JSON object"},
             {R"({"prompt":"a"})", "400 the request gives 1 of the model's 3 inputs"},
             {R"({"y":1})", "400 the request gives 0 of the model's 3 inputs"},
             {R"({"id":7})", "400 the id is not a string of at most 256 bytes"},
             {R"({"parameters":{"sequence_id":7}})", "501 this door does not support sequences of requests"},
             {R"({"pair":[1,2],"seed":1,"prompt":"123456789"})", "400 input 'prompt': the text is longer than 8 bytes"},
             {R"({"pair":[1,2],"seed":1,"prompt":[1,2,3]})", "400 input 'prompt': it must be a string, in quotes"},
             {R"({"pair":1,"seed":1,"prompt":"a"})", two},
             {R"({"pair":"12","seed":1,"prompt":"a"})", two},
             {R"({"pair":["1","2"],"seed":1,"prompt":"a"})", "400 input 'pair': a value of the data is not a valid FP"},
             {R"({"pair":[1,2],"seed":{},"prompt":"a"})", "400 input 'seed': the data does not have the 1 elements"},
             {R"({"pair":[1,2],"seed":"1","prompt":"a"})", "400 input 'seed': a value of the data is not a valid INT3"},
             {'{' + rest + '}', "taken"},
             // Fields that no input has are passed over, as far as they are JSON and short.
             {'{' + rest + R"(,"top_k":3,"stream":true,"stop":["a","b"],"tools":{"a":[1,{"b":null}]}})", "taken"},
             {'{' + rest + R"(,"a":nonsense})", "400 the request is not JSON"},
             {'{' + rest + R"(,"a":[1,]})", "400 the request is not JSON"},
             {'{' + rest + R"(,"a":"\x"})", "400 the request is not JSON"},
             {'{' + rest + R"(,"a":})", "400 the request is not JSON"},
             {'{' + rest + long_field + '}', "400 the JSON has more than 64 KiB besides its inputs"}})
        EXPECT_EQ(generate_refusal(text).substr(0, said.size()), said) << text.substr(0, 200);
}

TEST(oip_generate, a_text_ends_before_its_zeros_and_a_part_may_be_shorter) {
    const auto model = generator();
    std::vector<std::byte> payload(model.output_bytes);
    std::memcpy(payload.data(), "a\"\0b\0\0\0", 8);
    std::vector<tensor> outputs;
    for (const named_tensor& each : model.outputs) outputs.push_back(each.what);
    EXPECT_EQ(generate_document(model, "7", outputs, payload).value(),
              R"({"model_name":"g","model_version":"1","id":"7","text":"a\"\u0000b","pair":[0,0],"count":0})");
    outputs[0].shape[0] = 1;
    EXPECT_EQ(generate_document(model, "", outputs, payload).value(),
              R"({"model_name":"g","model_version":"1","text":"a","pair":[0,0],"count":0})");
    const std::uint32_t infinity = 0x7f800000;
    std::memcpy(payload.data() + 64, &infinity, sizeof infinity);
    EXPECT_EQ(generate_document(model, "", outputs, payload).code(), status::invalid_argument);
    EXPECT_EQ(event_of("{}"), "data: {}\n\n");
}

// What protobuf writes of ModelStreamInferResponse.
TEST(wire_stream, stream_messages_have_the_bytes_that_protobuf_writes) {
    const auto model = read_description(R"({"name":"m","inputs":[{"name":"a","datatype":"FP32","shape":[1]}],
        "outputs":[{"name":"a","datatype":"FP32","shape":[1]}]})")
                           .value();
    const std::string final_key = "\x22\x1b\x0a\x15triton_final_response\x12\x02\x08";
    const auto text_of = [](const wire::infer_response& from) {
        std::string out;
        for (std::size_t i = 0; i < from.heads.size(); ++i) {
            out += from.heads[i];
            if (i < from.tensors.size())
                out.append(reinterpret_cast<const char*>(from.tensors[i].data()), from.tensors[i].size());
        }
        return out;
    };
    EXPECT_EQ(text_of(wire::empty_stream_response(model, "7")),
              "\x12\x26\x0a\x01m\x12\x01\x31\x1a\x01\x37" + final_key + '\1');
    EXPECT_EQ(text_of(wire::stream_error("7", "no")), "\x0a\x02no\x12\x20\x1a\x01\x37" + final_key + '\1');
    const output_choice y{0, true};
    const tensor said = model.outputs[0].what;
    const std::array<std::byte, 4> payload{};
    const auto part = wire::make_stream_response(model, "7", {&y, 1}, {&said, 1}, payload, false);
    EXPECT_EQ(text_of(part), "\x12\x3a\x0a\x01m\x12\x01\x31\x1a\x01\x37" + final_key + std::string(1, '\0') +
                                 "\x2a\x0c\x0a\x01\x61\x12\x04"
                                 "FP32\x1a\x01\x01" +
                                 "\x32\x04" + std::string(4, '\0'));
}

}  // namespace
}  // namespace accel::examples::serving::oip
