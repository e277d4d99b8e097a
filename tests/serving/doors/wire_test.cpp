// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/fields.hpp"
#include "serving/doors/grpc/infer_inputs.hpp"
#include "serving/doors/grpc/messages.hpp"
#include "serving/doors/grpc/typed_contents.hpp"
#include "serving/doors/grpc/writer.hpp"
#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/infer_answer.hpp"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::wire {
namespace {

// Messages that end in "_hex" were serialised by protobuf 6 from the protocol's own definitions (tritonclient 2.73).

/// m, version 1, id 7, timeout 1500; a = {1.5, -2}, b = {1, -1, 7} as raw contents; output y.
constexpr std::string_view raw_hex =
    "0a016d1201311a0137220e0a0774696d656f7574120310dc0b2a0d0a01611204465033321a0201022a0c0a016212"
    "04494e54381a010332030a01793a080000c03f000000c03a0301ff07";
/// b = {1, -1, -128} and a = {1.5, -2} as typed contents, in this order.
constexpr std::string_view typed_hex =
    "0a016d2a250a01621204494e54381a01032a17121501ffffffffffffffffff0180ffffffffffffffff012a190a01"
    "611204465033321a0201022a0a32080000c03f000000c0";
constexpr std::string_view response_hex = "0a016d1201311a01372a0c0a01791204465033321a010232080000c03f000000c0";
constexpr std::string_view metadata_hex =
    "0a016d1201311a0f616363656c5f7472616e73706f7274220d0a01611204465033321a020102220c0a0162120449"
    "4e54381a01032a0c0a01791204465033321a0102";
constexpr std::string_view configuration_hex =
    "0a450a016d120f616363656c5f7472616e73706f72742a090a0161100b220201022a080a0162100622010332080a"
    "0179100b1a01028a010f616363656c5f7472616e73706f7274";
constexpr std::string_view statistics_hex = "0a1f0a016d12013118052002280232110a05080210ac0212001a0022002a003200";
constexpr std::string_view server_hex =
    "0a0f616363656c5f7472616e73706f72741205302e312e301a136d6f64656c5f636f6e66696775726174696f6e1a"
    "0a73746174697374696373";

std::string from_hex(std::string_view hex) {
    std::string out;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        out += static_cast<char>(std::stoi(std::string{hex.substr(i, 2)}, nullptr, 16));
    return out;
}

/// A message in slices of `bytes` each, with empty ones between.
struct sliced {
    std::string text;
    std::vector<slice> slices;

    explicit sliced(std::string message, std::size_t bytes = 1000) : text(std::move(message)) {
        const auto all = std::as_bytes(std::span{text});
        for (std::size_t at = 0; at < all.size(); at += bytes) {
            slices.push_back(all.subspan(at, std::min(bytes, all.size() - at)));
            slices.emplace_back();
        }
    }
};

oip::model_description wire_model() {
    return oip::read_description(R"({"name":"m","target":"t",
        "inputs":[{"name":"a","datatype":"FP32","shape":[1,2]},{"name":"b","datatype":"INT8","shape":[3]}],
        "outputs":[{"name":"y","datatype":"FP32","shape":[2]}]})")
        .value();
}

std::string sentence(const error& why) {
    return std::to_string(grpc_status_of(why.code)) + ' ' + why.message;
}

std::string refused(const std::string& message) {
    const sliced in{message};
    auto read = read_infer_message(in.slices);
    if (!read) return sentence(read.error());
    auto fit = fit_to_model(read.value(), wire_model());
    return fit ? "taken" : sentence(fit.error());
}

/// Whether a sentence has this part; "taken" is all of it.
bool has(const std::string& text, std::string_view part) {
    return part == "taken" ? text == part : text.find(part) != std::string::npos;
}

/// A message of which a test changes one thing.
struct built {
    std::string version, a_name = "a", a_type = "FP32", b_type = "INT8", more_of_a, more;
    std::vector<std::uint64_t> a_shape{1, 2};
    std::vector<std::string> raw{std::string(8, '\1'), "xyz"};

    [[nodiscard]] static writer tensor_of(const std::string& name, const std::string& type,
                                          const std::vector<std::uint64_t>& shape) {
        writer out;
        out.text(1, name);
        out.text(2, type);
        out.packed(3, shape);
        return out;
    }
    [[nodiscard]] std::string text() const {
        writer out;
        out.text(1, "m");
        out.text(2, version);
        out.entry(5, tensor_of(a_name, a_type, a_shape).take() + more_of_a);
        out.message(5, tensor_of("b", b_type, {3}));
        for (const std::string& each : raw) out.entry(7, each);
        return out.take() + more;
    }
};

writer named_parameter(std::string_view name, std::uint32_t kind, std::uint64_t value) {
    writer what, out;
    what.number(kind, value);
    out.text(1, name);
    out.message(2, what);
    return out;
}

/// A field that holds nothing but a message.
std::string field_of(std::uint32_t number, const writer& value) {
    writer out;
    out.message(number, value);
    return out.take();
}

/// values_test has what tensors of any type become; these bytes are protobuf's own.
TEST(wire_request, messages_of_protobuf_are_read_in_any_slices) {
    const float a[2] = {1.5F, -2};
    for (const auto& [hex, b] : {std::pair{raw_hex, "\x01\xff\x07"}, {typed_hex, "\x01\xff\x80"}})
        for (std::size_t bytes = 1; bytes < 80; ++bytes) {
            const sliced in{from_hex(hex), bytes};
            const auto read = read_infer_message(in.slices).value();
            const auto fit = fit_to_model(read, wire_model()).value();
            std::vector<std::byte> room(wire_model().input_bytes, std::byte{0xaa});
            write_inputs(fit, wire_model(), room);
            EXPECT_EQ(std::memcmp(room.data(), a, sizeof a), 0) << bytes;
            EXPECT_EQ(std::memcmp(room.data() + 64, b, 3), 0) << bytes;
            EXPECT_EQ(read.model + read.version + read.id, hex == raw_hex ? "m17" : "m");
            EXPECT_EQ(fit.timeout, std::chrono::microseconds{hex == raw_hex ? 1500 : 0});
            ASSERT_EQ(fit.outputs.size(), 1U);
            EXPECT_TRUE(fit.outputs[0].binary);
        }
}

TEST(wire_request, each_cut_message_is_refused_or_lacks_something) {
    for (const std::string_view hex : {raw_hex, typed_hex}) {
        const std::string whole = from_hex(hex);
        EXPECT_EQ(refused(whole), "taken");
        for (std::size_t length = 0; length < whole.size(); ++length)
            EXPECT_EQ(refused(whole.substr(0, length)).front(), '3') << length;
    }
}

std::string parameter_of(std::string_view name, std::uint32_t kind, std::uint64_t value) {
    return field_of(4, named_parameter(name, kind, value));
}

/// An output that a request asks for, with a parameter.
std::string output_of(std::string_view name, const writer& parameter) {
    writer out;
    out.text(1, name);
    out.message(2, parameter);
    return field_of(6, out);
}

/// Where a region's part is; `bytes` of 0 are left out.
std::string region_of(std::string_view region, std::uint64_t bytes, std::uint64_t offset = 0) {
    writer name, out;
    name.text(string_param, region);
    writer first;
    first.text(1, "shared_memory_region");
    first.message(2, name);
    out.message(4, first);
    if (bytes > 0) out.message(4, named_parameter("shared_memory_byte_size", int64_param, bytes));
    if (offset > 0) out.message(4, named_parameter("shared_memory_offset", int64_param, offset));
    return out.take();
}

constexpr std::uint64_t minus_one = ~std::uint64_t{0};

struct changed_message {
    void (*change)(built&);
    const char* said;
};

const changed_message changed_messages[] = {
    {[](built&) {}, "taken"},
    {[](built& b) { b.version = "1"; }, "taken"},
    {[](built& b) { b.version = "2"; }, "5 model 'm' has no version '2'"},
    {[](built& b) { b.a_name = "z"; }, "3 model 'm' has no input 'z'"},
    {[](built& b) { b.a_type = "INT32"; }, "not 'INT32'"},
    {[](built& b) {
         b.a_shape = {2, 1};
     },
     "the shape must be [1,2]"},
    {[](built& b) {
         b.a_shape = {1, 2, 1};
     },
     "the shape must be [1,2]"},
    {[](built& b) {
         b.a_shape = {1, 0};
     },
     "a dimension is 0"},
    {[](built& b) {
         b.a_shape = {1, minus_one};
     },
     "negative"},
    {[](built& b) {
         b.a_shape = {1, std::uint64_t{1} << 63};
     },
     "negative"},
    {[](built& b) {
         b.a_shape = {1, (std::uint64_t{1} << 32) + 2};
     },
     "the shape must be [1,2]"},
    {[](built& b) { b.a_shape.assign(8, 1); }, "the shape must be [1,2]"},
    {[](built& b) { b.a_shape.assign(9, 1); }, "more than 8 dimensions"},
    {[](built& b) { b.raw.pop_back(); }, "input 'b': its raw contents are missing"},
    {[](built& b) { b.raw[0].pop_back(); }, "raw contents must be 8, not 7"},
    {[](built& b) { b.raw[0] += '\1'; }, "raw contents must be 8, not 9"},
    {[](built& b) { b.raw.emplace_back("a"); }, "the request has 2 inputs, but its raw contents are of 3"},
    {[](built& b) { b.raw.clear(); }, "fp32_contents does not have the 2 elements"},
    {[](built& b) { b.more_of_a = field_of(5, {}); }, "both contents and raw contents"},
    {[](built& b) {
         b.more = field_of(5, built::tensor_of("a", "FP32", {1, 2}));
         b.raw.emplace_back(8, '\2');
     },
     "3 input 'a': it is given twice"},
    {[](built& b) {
         b.more_of_a = region_of("r", 8, 64);
         b.raw.erase(b.raw.begin());
     },
     "taken"},
    {[](built& b) { b.more_of_a = region_of("r", 9); }, "shared_memory_byte_size must be 8, not 9"},
    {[](built& b) { b.more_of_a = region_of("r", 0); }, "a tensor in shared memory needs"},
    {[](built& b) { b.more_of_a = region_of("r", 8, minus_one); }, "a tensor in shared memory needs"},
    {[](built& b) { b.more_of_a = region_of("r", 8) + field_of(5, {}); }, "both contents and a shared_memory_region"},
    {[](built& b) { b.more = field_of(6, built::tensor_of("y", "", {})); }, "taken"},
    {[](built& b) { b.more = field_of(6, built::tensor_of("z", "", {})); }, "3 model 'm' has no output 'z'"},
    {[](built& b) {
         b.more = field_of(6, built::tensor_of("y", "", {}));
         b.more += b.more;
     },
     "requested twice"},
    {[](built& b) { b.more = output_of("y", named_parameter("classification", int64_param, 1)); }, "12 this door does"},
    {[](built& b) { b.more = parameter_of("sequence_id", int64_param, 1); }, "12 this door does not support sequences"},
    {[](built& b) { b.more = parameter_of("sequence_start", bool_param, 1); }, "12 this door does not support seq"},
    {[](built& b) { b.more = parameter_of("sequence_end", bool_param, 1); }, "12 this door does not support seq"},
    {[](built& b) {
         for (const char* none : {"sequence_id", "sequence_start", "sequence_end"})
             b.more += parameter_of(none, int64_param, 0);
     },
     "taken"},
    {[](built& b) { b.more = parameter_of("timeout", int64_param, 3'600'000'000); }, "taken"},
    {[](built& b) { b.more = parameter_of("timeout", uint64_param, 3'600'000'001); }, "3 the timeout"},
    {[](built& b) { b.more = parameter_of("timeout", int64_param, minus_one); }, "3 the timeout"},
    {[](built& b) { b.more = parameter_of("timeout", bool_param, 1); }, "3 the timeout"},
    {[](built& b) { b.more = parameter_of("priority", int64_param, 7); }, "taken"},
    {[](built& b) { b.more = parameter_of("priority", uint64_param, minus_one); }, "taken"},
    {[](built& b) { b.more = parameter_of("priority", int64_param, minus_one); }, "3 the priority"},
    {[](built& b) { b.more = parameter_of("priority", bool_param, 1); }, "3 the priority"},
    // Unknown fields, of each form; `inputs` as a number is unknown, too.
    {[](built& b) { b.more = from_hex("0b0cf83f01fa3f0178fd3f01020304f93f01020304050607082801"); }, "taken"},
};

TEST(wire_request, requests_that_do_not_fit_the_model_are_refused_with_a_sentence) {
    for (const changed_message& each : changed_messages) {
        built one;
        each.change(one);
        const std::string said = refused(one.text());
        EXPECT_TRUE(has(said, each.said)) << "row " << &each - changed_messages << ", " << each.said << ": " << said;
    }
}

TEST(wire_request, the_last_of_several_values_holds) {
    built one;
    one.version = "2";
    writer later;
    later.text(2, "1");
    later.message(4, named_parameter("timeout", int64_param, ~std::uint64_t{0}));
    later.message(4, named_parameter("timeout", uint64_param, 8));
    one.more = later.take();
    const sliced in{one.text()};
    const auto fit = fit_to_model(read_infer_message(in.slices).value(), wire_model()).value();
    EXPECT_EQ(fit.timeout, std::chrono::microseconds{8});
}

TEST(wire_request, lists_and_names_are_bounded) {
    const auto many = [](std::uint32_t field, std::size_t count) {
        writer out;
        for (std::size_t i = 0; i < count; ++i)
            field == 4 ? out.message(4, named_parameter(std::to_string(i), 1, 1)) : out.entry(field, "");
        return refused(out.take());
    };
    for (const auto& [field, said] : {std::pair{4U, "more than 64"},
                                      {5U, "more than 64 inputs"},
                                      {6U, "more than 64 outputs"},
                                      {7U, "more than 64 raw contents"}}) {
        EXPECT_FALSE(has(many(field, max_entries), "more than 64")) << field;
        EXPECT_TRUE(has(many(field, max_entries + 1), said)) << field;
    }
    for (std::uint32_t field = 1; field <= 3; ++field)
        for (const std::size_t length : {max_name_bytes, max_name_bytes + 1}) {
            writer name;
            name.entry(field, std::string(length, 'n'));
            EXPECT_EQ(has(refused(name.take()), "longer than 256 bytes"), length > max_name_bytes) << field;
        }
}

TEST(wire_request, requests_that_name_a_model_are_read) {
    const auto read = [](const std::string& text) -> std::string {
        const sliced in{text, 1};
        auto out = read_named_message(in.slices);
        return out ? out->name + '/' + out->version : "refused";
    };
    EXPECT_EQ(read(from_hex("0a016d120131")), "m/1");
    EXPECT_EQ(read(from_hex("0a016d1201")), "refused") << "it is cut";
    for (std::uint32_t field = 1; field <= 2; ++field) {
        writer longest, longer;
        longest.entry(field, std::string(max_name_bytes, 'n'));
        longer.entry(field, std::string(max_name_bytes + 1, 'n'));
        EXPECT_NE(read(longest.take()), "refused");
        EXPECT_EQ(read(longer.take()), "refused");
    }
}

std::string contents_refused(std::string_view type, const writer& contents) {
    built one;
    one.b_type = type;
    writer input = built::tensor_of("b", one.b_type, {3});
    input.message(5, contents);
    tensor what{.type = *oip::type_of(type), .rank = 1};
    what.shape[0] = 3;
    const sliced in{input.take(), 3};
    const auto good = check_contents(cursor{in.slices}, what);
    return good ? "taken" : good.error().message;
}

/// Values of a type in its list, apart by blanks, that are taken, and others.
struct contents_range {
    const char* type;
    std::uint32_t list;
    const char* good;
    const char* bad;
};
constexpr contents_range contents_ranges[] = {
    {"BOOL", 1, "0 1", "2 -1"},
    {"INT8", 2, "127 -128", "128 -129"},
    {"INT16", 2, "32767 -32768", "32768 -32769"},
    {"INT32", 2, "2147483647 -2147483648", "2147483648 -2147483649"},
    {"INT64", 3, "9223372036854775807 -9223372036854775808", ""},
    {"UINT8", 4, "255", "256 -1"},
    {"UINT16", 4, "65535", "65536 -1"},
    {"UINT32", 4, "4294967295", "4294967296 -1"},
    {"UINT64", 5, "18446744073709551615", ""},
};

TEST(wire_contents, each_type_takes_its_range_and_its_list) {
    const auto refused = [](const char* type, std::uint32_t list, const std::vector<std::uint64_t>& values) {
        writer contents;
        contents.packed(list, values);
        return contents_refused(type, contents);
    };
    for (const contents_range& each : contents_ranges) {
        for (const auto& [list, said] :
             {std::pair{each.good, std::string{"taken"}}, {each.bad, std::string{"not a valid "} + each.type}}) {
            std::istringstream values(list);
            for (std::string one; values >> one;) {
                const bool negative = one.front() == '-';
                const auto value = negative ? static_cast<std::uint64_t>(std::stoll(one)) : std::stoull(one);
                EXPECT_TRUE(has(refused(each.type, each.list, {0, 1, value}), said)) << each.type << ' ' << one;
            }
        }
        EXPECT_TRUE(has(refused(each.type, each.list % 5 + 1, {1, 0, 1}), "its contents are not in ")) << each.type;
        for (const std::vector<std::uint64_t>& other : {std::vector<std::uint64_t>{1, 0}, {1, 0, 1, 1}})
            EXPECT_TRUE(has(refused(each.type, each.list, other), "3 elements")) << each.type;
    }
    EXPECT_TRUE(has(refused("FP16", 6, {1, 0, 1}), "raw contents"));
}

/// What a walk over these bytes finds: numbers of fields, and "!" where it is malformed.
std::string walked(std::string_view hex) {
    const sliced in{from_hex(hex), 1};
    field_walk fields{cursor{in.slices}};
    field one;
    std::string out;
    while (fields.next(one)) out += std::to_string(one.number) + ' ';
    return fields.malformed() ? out + '!' : out;
}

TEST(wire_fields, malformed_bytes_end_the_walk_and_groups_are_skipped) {
    const auto many = [](std::string_view hex) {
        std::string out;
        for (std::size_t i = 0; i < max_group_depth; ++i) out += hex;
        return out;
    };
    const std::string open = many("0b");
    const std::string close = many("0c");
    for (const auto& [hex, wanted, what] : std::initializer_list<std::tuple<std::string, const char*, const char*>>{
             {"", "", "nothing"},
             {"0801", "1 ", "a varint"},
             {"08ffffffffffffffffff01", "1 ", "10 bytes of a varint"},
             {"08ffffffffffffffffff02", "!", "beyond 64 bits"},
             {"08ffffffffffffffffffff01", "!", "11 bytes"},
             {"0880", "!", "a varint without an end"},
             {"08", "!", "no varint"},
             {"0001", "!", "field 0"},
             {"0a0261", "!", "a length beyond the message"},
             {"0affffffffffffffffff0161", "!", "a length of 2^64 - 1"},
             {"0a8080808080808080800161", "!", "a length of 2^63"},
             {"0d010203", "!", "three bytes of four"},
             {"0901020304050607", "!", "seven bytes of eight"},
             {"0e", "!", "there is no wire type 6"},
             {"0f", "!", "there is no wire type 7"},
             {"80808080800101", "!", "a tag beyond 32 bits"},
             {"0b0c1001", "2 ", "an empty group"},
             {"0b1305140c1001", "!", "in a group, too, a tag has a value"},
             {"0b1308011a0178140c1001", "2 ", "a group in a group"},
             {"0b", "!", "a group without an end"},
             {"0b14", "!", "ended by another number"},
             {"0c", "!", "an end without a group"},
             {open + close + "1001", "2 ", "nested as deep as may be"},
             {open + "0b0c" + close, "!", "nested too deep"},
             {open + "0b1001", "!", "no field follows what is nested too deep"}})
        EXPECT_EQ(walked(hex), wanted) << what;
}

TEST(wire_answer, an_answer_has_the_bytes_that_protobuf_writes) {
    const auto model = wire_model();
    const float values[2] = {1.5F, -2};
    const auto payload = std::as_bytes(std::span{values});
    const auto outputs = oip::answered_tensors(model, {}, payload).value();
    const oip::output_choice y{0, true};
    const auto out = make_response(model, "7", {&y, 1}, outputs, payload);
    ASSERT_EQ(out.heads.size(), 1U);
    ASSERT_EQ(out.tensors.size(), 1U);
    EXPECT_EQ(out.tensors[0].data(), payload.data()) << "not a copy";
    EXPECT_EQ(out.heads[0] + std::string(reinterpret_cast<const char*>(values), sizeof values), from_hex(response_hex));
}

TEST(wire_answer, documents_have_the_bytes_that_protobuf_writes) {
    const auto model = wire_model();
    EXPECT_EQ(model_metadata_message(model), from_hex(metadata_hex));
    EXPECT_EQ(model_configuration_message(model), from_hex(configuration_hex));
    EXPECT_EQ(server_metadata_message("0.1.0", {}), from_hex(server_hex));
    oip::model_counts counts;
    counts.success = {2, std::chrono::nanoseconds{300}};
    counts.last = std::chrono::milliseconds{5};
    const oip::counted_model one{&model, &counts};
    EXPECT_EQ(model_statistics_message({&one, 1}), from_hex(statistics_hex));
    EXPECT_EQ(yes_or_no(true), from_hex("0801"));
    EXPECT_EQ(yes_or_no(false), "");
    EXPECT_EQ(health(health_state::not_serving), from_hex("0802"));
    EXPECT_EQ(health(health_state::unknown_service), from_hex("0803"));
}

TEST(wire_errors, each_status_has_a_code_of_grpc) {
    const std::map<status, int> codes{
        {status::ok, 0},         {status::cancelled, 1},         {status::invalid_argument, 3},
        {status::timed_out, 4},  {status::not_found, 5},         {status::again, 8},
        {status::overloaded, 8}, {status::message_too_large, 8}, {status::unsupported, 12},
        {status::peer_lost, 14}, {status::closed, 14},           {status::device_lost, 14}};
    for (std::uint16_t i = 0; i < status_count; ++i) {
        const auto one = static_cast<status>(i);
        EXPECT_EQ(grpc_status_of(one), codes.contains(one) ? codes.at(one) : 13) << to_string(one);
    }
}

}  // namespace
}  // namespace accel::examples::serving::wire
