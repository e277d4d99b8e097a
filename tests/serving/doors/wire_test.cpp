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
#include <string>
#include <string_view>
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

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
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

std::vector<std::byte> placed(const std::string& message, std::size_t slice_bytes) {
    const sliced in{message, slice_bytes};
    const auto model = wire_model();
    auto read = read_infer_message(in.slices);
    EXPECT_TRUE(read);
    auto fit = fit_to_model(read.value(), model);
    EXPECT_TRUE(fit);
    std::vector<std::byte> room(model.input_bytes, std::byte{0xaa});
    write_inputs(fit.value(), model, room);
    return room;
}

TEST(wire_request, raw_contents_in_any_slices_are_placed_where_the_model_wants_them) {
    const float a[2] = {1.5F, -2};
    for (std::size_t bytes = 1; bytes < 80; ++bytes) {
        const auto room = placed(from_hex(raw_hex), bytes);
        EXPECT_EQ(std::memcmp(room.data(), a, sizeof a), 0) << bytes;
        EXPECT_EQ(std::memcmp(room.data() + 64, "\x01\xff\x07", 3), 0) << bytes;
        EXPECT_TRUE(std::all_of(room.begin() + 8, room.begin() + 64, [](std::byte b) { return b == std::byte{0}; }));
    }
}

TEST(wire_request, names_parameters_and_outputs_are_read) {
    const sliced in{from_hex(raw_hex), 7};
    const auto read = read_infer_message(in.slices).value();
    EXPECT_EQ(read.model + '/' + read.version + '/' + read.id, "m/1/7");
    const auto fit = fit_to_model(read, wire_model()).value();
    EXPECT_EQ(fit.timeout, std::chrono::microseconds{1500});
    ASSERT_EQ(fit.outputs.size(), 1U);
    EXPECT_TRUE(fit.outputs[0].binary);
}

TEST(wire_request, typed_contents_become_the_same_bytes) {
    const float a[2] = {1.5F, -2};
    for (std::size_t bytes = 1; bytes < 80; ++bytes) {
        const auto room = placed(from_hex(typed_hex), bytes);
        EXPECT_EQ(std::memcmp(room.data(), a, sizeof a), 0) << bytes;
        EXPECT_EQ(std::memcmp(room.data() + 64, "\x01\xff\x80", 3), 0) << bytes;
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

TEST(wire_request, requests_that_do_not_fit_the_model_are_refused_with_a_sentence) {
    const auto with = [](auto change) {
        built one;
        change(one);
        return refused(one.text());
    };
    EXPECT_EQ(with([](built&) {}), "taken");
    EXPECT_TRUE(has(with([](built& b) { b.version = "2"; }), "5 model 'm' has no version '2'"));
    EXPECT_TRUE(has(with([](built& b) { b.a_name = "z"; }), "3 model 'm' has no input 'z'"));
    EXPECT_TRUE(has(with([](built& b) { b.a_type = "INT32"; }), "not 'INT32'"));
    EXPECT_TRUE(has(with([](built& b) { b.a_shape = {2, 1}; }), "the shape must be [1,2]"));
    EXPECT_TRUE(has(with([](built& b) { b.a_shape = {1, 2, 1}; }), "the shape must be [1,2]"));
    EXPECT_TRUE(has(with([](built& b) { b.a_shape = {1, ~std::uint64_t{0}}; }), "negative"));
    EXPECT_TRUE(has(with([](built& b) { b.a_shape = {1, std::uint64_t{1} << 63}; }), "negative"));
    EXPECT_TRUE(has(with([](built& b) { b.a_shape = {1, (std::uint64_t{1} << 32) + 2}; }), "the shape must be [1,2]"));
    EXPECT_TRUE(has(with([](built& b) { b.a_shape.assign(9, 1); }), "more than 8 dimensions"));
    EXPECT_TRUE(has(with([](built& b) { b.raw.pop_back(); }), "input 'b': its raw contents are missing"));
    EXPECT_TRUE(has(with([](built& b) { b.raw[0].pop_back(); }), "raw contents must be 8, not 7"));
    EXPECT_TRUE(has(with([](built& b) { b.raw.clear(); }), "fp32_contents does not have the 2 elements"));
    EXPECT_TRUE(has(with([](built& b) { b.more = field_of(6, built::tensor_of("z", "", {})); }), "no output 'z'"));
}

TEST(wire_request, an_input_or_output_is_given_once) {
    built one;
    const std::string twice = field_of(6, built::tensor_of("y", "", {}));
    one.more = twice + twice;
    EXPECT_TRUE(has(refused(one.text()), "requested twice"));
    one.more = field_of(5, built::tensor_of("a", "FP32", {1, 2}));
    one.raw.emplace_back(8, '\2');
    EXPECT_TRUE(has(refused(one.text()), "input 'a': it is given twice"));
}

TEST(wire_request, classification_and_sequences_are_unsupported) {
    built one;
    one.more = field_of(4, named_parameter("sequence_id", int64_param, 1));
    EXPECT_TRUE(has(refused(one.text()), "12 this door does not support sequences"));
    for (const char* none : {"sequence_id", "sequence_start", "sequence_end"}) {
        one.more = field_of(4, named_parameter(none, int64_param, 0));
        EXPECT_EQ(refused(one.text()), "taken") << none;
    }
    writer more;
    more.text(1, "y");
    more.message(2, named_parameter("classification", int64_param, 1));
    one.more = field_of(6, more);
    EXPECT_TRUE(has(refused(one.text()), "12 this door does not classify"));
}

TEST(wire_request, contents_beside_raw_contents_are_a_contradiction) {
    built one;
    one.more_of_a = field_of(5, {});
    EXPECT_TRUE(has(refused(one.text()), "both contents and raw contents"));
}

TEST(wire_request, a_timeout_is_a_number_up_to_an_hour) {
    for (const std::uint64_t wrong : {std::uint64_t{3'600'000'001}, ~std::uint64_t{0}}) {
        built one;
        one.more = field_of(4, named_parameter("timeout", int64_param, wrong));
        EXPECT_TRUE(has(refused(one.text()), "the timeout")) << wrong;
    }
}

TEST(wire_request, a_priority_is_a_whole_number_and_changes_nothing) {
    const auto with = [](std::uint32_t kind, std::uint64_t value) {
        built one;
        one.more = field_of(4, named_parameter("priority", kind, value));
        return one.text();
    };
    EXPECT_TRUE(has(refused(with(int64_param, ~std::uint64_t{0})), "the priority"));
    EXPECT_TRUE(has(refused(with(bool_param, 1)), "the priority"));
    for (const std::uint32_t kind : {int64_param, uint64_param}) {
        const std::string text = with(kind, 7);
        const sliced in{text};
        EXPECT_TRUE(fit_to_model(read_infer_message(in.slices).value(), wire_model()));
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
    const auto many = [](std::uint32_t field) {
        writer out;
        for (std::size_t i = 0; i <= max_entries; ++i) out.entry(field, "");
        return refused(out.take());
    };
    EXPECT_TRUE(has(many(5), "more than 64 inputs"));
    EXPECT_TRUE(has(many(6), "more than 64 outputs"));
    EXPECT_TRUE(has(many(7), "more than 64 raw contents"));
    writer parameters;
    for (std::size_t i = 0; i <= max_entries; ++i) parameters.message(4, named_parameter(std::to_string(i), 1, 1));
    EXPECT_TRUE(has(refused(parameters.take()), "more than 64"));
    for (std::uint32_t field = 1; field <= 3; ++field) {
        writer long_name;
        long_name.entry(field, std::string(257, 'n'));
        EXPECT_TRUE(has(refused(long_name.take()), "longer than 256 bytes")) << field;
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

writer packed_contents(std::uint32_t field, const std::vector<std::uint64_t>& values) {
    writer out;
    out.packed(field, values);
    return out;
}

TEST(wire_contents, each_type_takes_its_range_and_its_list) {
    constexpr std::uint64_t minus_one = ~std::uint64_t{0};
    EXPECT_EQ(contents_refused("INT8", packed_contents(2, {127, minus_one - 127, 0})), "taken");
    EXPECT_TRUE(has(contents_refused("INT8", packed_contents(2, {128, 0, 0})), "not a valid INT8"));
    EXPECT_TRUE(has(contents_refused("INT8", packed_contents(2, {minus_one - 128, 0, 0})), "not a valid INT8"));
    EXPECT_TRUE(has(contents_refused("INT32", packed_contents(2, {0x80000000U, 0, 0})), "not a valid INT32"));
    EXPECT_EQ(contents_refused("INT64", packed_contents(3, {minus_one, 0, 1})), "taken");
    EXPECT_TRUE(has(contents_refused("UINT16", packed_contents(4, {65536, 0, 0})), "not a valid UINT16"));
    EXPECT_EQ(contents_refused("UINT64", packed_contents(5, {minus_one, 0, 1})), "taken");
    EXPECT_TRUE(has(contents_refused("BOOL", packed_contents(1, {2, 0, 1})), "not a valid BOOL"));
    EXPECT_TRUE(has(contents_refused("INT8", packed_contents(4, {1, 0, 1})), "not in int_contents"));
    EXPECT_TRUE(has(contents_refused("FP16", packed_contents(6, {1, 0, 1})), "raw contents"));
    EXPECT_TRUE(has(contents_refused("INT8", packed_contents(2, {1, 0})), "3 elements"));
    EXPECT_TRUE(has(contents_refused("INT8", packed_contents(2, {1, 0, 1, 1})), "3 elements"));
}

TEST(wire_contents, elements_may_come_one_by_one_and_in_several_fields) {
    writer mixed;
    mixed.number(2, 5);
    mixed.packed(2, std::vector<std::uint64_t>{6, 7});
    EXPECT_EQ(contents_refused("INT8", mixed), "taken");
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

TEST(wire_fields, malformed_bytes_end_the_walk) {
    EXPECT_EQ(walked(""), "");
    EXPECT_EQ(walked("0801"), "1 ");
    EXPECT_EQ(walked("08ffffffffffffffffff01"), "1 ") << "10 bytes of a varint";
    EXPECT_EQ(walked("08ffffffffffffffffff02"), "!") << "beyond 64 bits";
    EXPECT_EQ(walked("08ffffffffffffffffffff01"), "!") << "11 bytes";
    EXPECT_EQ(walked("0880"), "!") << "a varint without an end";
    EXPECT_EQ(walked("08"), "!");
    EXPECT_EQ(walked("0001"), "!") << "field 0";
    EXPECT_EQ(walked("0a0261"), "!") << "a length beyond the message";
    EXPECT_EQ(walked("0affffffffffffffffff0161"), "!") << "a length of 2^64 - 1";
    EXPECT_EQ(walked("0a8080808080808080800161"), "!") << "a length of 2^63";
    EXPECT_EQ(walked("0d010203"), "!") << "three bytes of four";
    EXPECT_EQ(walked("0901020304050607"), "!") << "seven bytes of eight";
    EXPECT_EQ(walked("0e"), "!") << "there is no wire type 6";
    EXPECT_EQ(walked("0f"), "!") << "there is no wire type 7";
    EXPECT_EQ(walked("80808080800101"), "!") << "a tag beyond 32 bits";
}

TEST(wire_fields, groups_are_skipped_and_their_nesting_is_bounded) {
    EXPECT_EQ(walked("0b0c1001"), "2 ");
    EXPECT_EQ(walked("0b1305140c1001"), "!") << "in a group, too, a tag has a value";
    EXPECT_EQ(walked("0b1308011a0178140c1001"), "2 ") << "a group in a group";
    EXPECT_EQ(walked("0b"), "!") << "a group without an end";
    EXPECT_EQ(walked("0b14"), "!") << "ended by another number";
    EXPECT_EQ(walked("0c"), "!") << "an end without a group";
    std::string open, close;
    for (std::size_t i = 0; i < max_group_depth; ++i) {
        open += "0b";
        close += "0c";
    }
    EXPECT_EQ(walked(open + close + "1001"), "2 ");
    EXPECT_EQ(walked(open + "0b0c" + close), "!");
    EXPECT_EQ(walked(open + "0b1001"), "!") << "no field follows what is nested too deep";
}

TEST(wire_request, unknown_fields_are_skipped) {
    built one;
    one.more = from_hex(
        "0b0c"
        "f83f01"
        "fa3f0178"
        "fd3f01020304"
        "f93f0102030405060708");
    EXPECT_EQ(refused(one.text()), "taken");
    one.more = from_hex("2801");  // `inputs` as a number is unknown, too
    EXPECT_EQ(refused(one.text()), "taken");
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

TEST(wire_answer, requests_that_name_a_model_are_read) {
    const sliced in{from_hex("0a016d120131"), 1};
    const auto read = read_named_message(in.slices).value();
    EXPECT_EQ(read.name + '/' + read.version, "m/1");
    const sliced cut{from_hex("0a016d1201")};
    EXPECT_FALSE(read_named_message(cut.slices));
    writer long_name;
    long_name.entry(1, std::string(257, 'n'));
    const sliced longer{long_name.take()};
    EXPECT_FALSE(read_named_message(longer.slices));
}

TEST(wire_errors, statuses_have_codes_of_grpc) {
    EXPECT_EQ(grpc_status_of(status::invalid_argument), 3);
    EXPECT_EQ(grpc_status_of(status::timed_out), 4);
    EXPECT_EQ(grpc_status_of(status::not_found), 5);
    EXPECT_EQ(grpc_status_of(status::overloaded), 8);
    EXPECT_EQ(grpc_status_of(status::peer_lost), 14);
    EXPECT_EQ(grpc_status_of(status::application_error), 13);
}

}  // namespace
}  // namespace accel::examples::serving::wire
