// SPDX-License-Identifier: Apache-2.0
// Seeds of the targets that read one message, file or address.
#include "backends/zmq/description.hpp"
#include "core/control/control_message.hpp"
#include "core/protocol.hpp"
#include "seeds.hpp"
#include "verbs/endpoint.hpp"

#include <accel_transport/detail/wire/response_target.hpp>
#include <accel_transport/detail/wire/tensor_extension.hpp>
#include <accel_transport/tensor.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace accel::tests {

using namespace accel::core;

namespace {

slot_header header(message_kind kind, std::uint32_t slot, std::uint64_t length) {
    slot_header h;
    h.kind = kind;
    h.slot = slot;
    h.generation = 7 + slot;
    h.length = length;
    if (kind == message_kind::request) h.response_room = 300;
    return h;
}

}  // namespace

void uri_seeds(const seed_folder& to) {
    to.add("tcp", std::string("tcp://127.0.0.1:4711?slots=8&request_bytes=64K&call_timeout=500ms&poll=busy"));
    to.add("ipv6", std::string("zmq://[::1]:65535?insecure=true"));
    to.add("local", std::string("local://digits"));
    to.add("auto", std::string("auto://server.example:1?key_file=%2Ftmp%2Fa.key&server_key=b"));
    to.add("server", std::string("tcp://*:0?workers=2&max_sessions=10&max_memory_bytes=1G&memory=cuda:0&data_port=99"));
    to.add("misspelt", std::string("tcp://h:1?slotz=4"));
    to.add("empty_port", std::string("tcp://h:?a=b"));
    to.add("no_scheme", std::string("h:1"));
}

void header_seeds(const seed_folder& to) {
    for (const message_kind kind : {message_kind::request, message_kind::response, message_kind::fragment}) {
        slot_header h = header(kind, 3, 100);
        bytes plain;
        append(plain, h);
        to.add("kind_" + std::to_string(static_cast<int>(kind)), plain);
        h.flags = header_flag::fragmented;
        h.extension_bytes = 16;
        h.code = status::overloaded;
        bytes full;
        append(full, h);
        to.add("extended_" + std::to_string(static_cast<int>(kind)), full);
    }
    to.add("zero", bytes(64, 0));
    to.add("ones", bytes(72, 0xff));
}

namespace {

/// `stream` as fuzz_tcp_stream takes it: the end that reads, then pieces of `piece` bytes, each behind its
/// length.
bytes in_pieces(std::uint8_t end, const bytes& stream, std::size_t piece) {
    bytes out{end};
    for (std::size_t at = 0; at < stream.size(); at += piece) {
        const std::size_t count = std::min(piece, stream.size() - at);
        out.push_back(static_cast<std::uint8_t>(count - 1));
        out.insert(out.end(), stream.begin() + static_cast<std::ptrdiff_t>(at),
                   stream.begin() + static_cast<std::ptrdiff_t>(at + count));
    }
    return out;
}

bytes whole_messages(message_kind kind) {
    bytes stream;
    for (const std::uint32_t slot : {0U, 1U, 2U, 3U}) {
        append(stream, header(kind, slot, slot * 13));
        stream.resize(stream.size() + slot * 13, static_cast<std::uint8_t>(slot));
    }
    return stream;
}

bytes fragmented_message(message_kind kind) {
    bytes stream;
    slot_header h = header(kind, 2, 90);
    h.flags = header_flag::fragmented;
    append(stream, h);
    for (int i = 0; i < 3; ++i) {
        fragment_header f;
        f.slot = 2;
        f.generation = h.generation;
        f.length = 30;
        append(stream, f);
        stream.resize(stream.size() + 30, static_cast<std::uint8_t>(i));
        append(stream, header(kind, i == 1 ? 0 : 1, 0));  // others pass between the pieces
    }
    return stream;
}

}  // namespace

void stream_seeds(const seed_folder& to) {
    for (const std::uint8_t end : {std::uint8_t{0}, std::uint8_t{1}}) {
        const message_kind kind = end == 0 ? message_kind::request : message_kind::response;
        const std::string name = end == 0 ? "requests" : "responses";
        for (const std::size_t piece : {5U, 64U, 256U}) {
            to.add(name + "_by_" + std::to_string(piece), in_pieces(end, whole_messages(kind), piece));
            to.add(name + "_fragmented_by_" + std::to_string(piece), in_pieces(end, fragmented_message(kind), piece));
        }
        slot_header extended = header(kind, 1, 5);
        extended.extension_bytes = 16;
        bytes stream;
        append(stream, extended);
        stream.resize(stream.size() + 16 + 5, 1);
        to.add(name + "_extended", in_pieces(end, stream, 100));
        bytes too_long;
        append(too_long, header(kind, 1, 301));
        to.add(name + "_too_long", in_pieces(end, too_long, 64));
    }
}

void control_seeds(const seed_folder& to) {
    const auto add = [&to](const std::string& name, const control_message& message) {
        const auto encoded = encode_control(message);
        const auto* from = reinterpret_cast<const std::uint8_t*>(encoded.data());
        to.add(name, bytes(from, from + encoded.size()));
    };
    using namespace std::chrono_literals;
    hello greeting;
    greeting.request.scheme = "tcp";
    greeting.request.wanted = {8, 4096, 4096};
    greeting.request.peer_timeout = 500ms;
    greeting.request.description.resize(20);
    greeting.sent = 123s;
    add("hello", {1, greeting});
    welcome grant;
    grant.grant.session_id = 5;
    grant.grant.granted = {8, 4096, 4096};
    grant.grant.peer_timeout = 500ms;
    grant.grant.description.resize(4);
    grant.clocks = {1s, 2s, 3s};
    add("welcome", {1, grant});
    add("refused", {2, refused{status::overloaded, "too many sessions"}});
    add("query", {3, query{}});
    add("offers", {3, offers{{"tcp", "zmq"}}});
    add("heartbeat", {0, heartbeat{{1s, 2s, 3s}}});
    add("goodbye", {0, goodbye{5, status::closed}});
    add("find_target", {4, find_target{"resnet-50/v2"}});
    add("cancel", {0, cancel_calls{5, {{1, 2}, {3, 4}}}});
    add("cancel_without_a_generation", {0, cancel_calls{5, {{1, 0}}}});
    add("find_target_with_a_blank", {4, find_target{"a b"}});
    add("target_found", {4, target_found{0x12345678}});
    add("going_away", {0, going_away{}});
    add("list_targets", {5, list_targets{"bert"}});
    add("targets_listed", {5, targets_listed{{{"a", "b"}, true}}});
    add("check_health", {6, check_health{"bert"}});
    add("health_checked", {6, health_checked{health_state::not_serving}});
    add("targets_out_of_order", {5, targets_listed{{{"b", "a"}, false}}});
    to.add("empty", bytes{});
    to.add("short", bytes(15, 0x41));
}

void zmq_seeds(const seed_folder& to) {
    for (const std::uint8_t end : {std::uint8_t{0}, std::uint8_t{1}}) {
        const message_kind kind = end == 0 ? message_kind::request : message_kind::response;
        const std::string name = end == 0 ? "request" : "response";
        bytes one{end, 64, 42};  // one frame of 84 bytes
        append(one, header(kind, 1, 20));
        one.resize(one.size() + 20, 9);
        to.add(name + "_in_one_frame", one);
        bytes two{end, 128};  // a frame of 64 bytes, another follows
        append(two, header(kind, 2, 40));
        two.push_back(64);
        two.push_back(20);
        two.resize(two.size() + 40, 9);
        to.add(name + "_in_two_frames", two);
        bytes three = two;
        const std::uint16_t extension_bytes = 16;
        std::memcpy(three.data() + 2 + offsetof(slot_header, extension_bytes), &extension_bytes,
                    sizeof extension_bytes);
        three[66] = 192;
        three.push_back(64);
        three.push_back(8);
        three.resize(three.size() + 16, 3);
        to.add(name + "_with_extensions", three);
        bytes surplus = two;
        surplus[66] = 192;
        surplus.push_back(64);
        surplus.push_back(0);
        to.add(name + "_with_a_frame_too_many", surplus);
    }
}

void zmq_description_seeds(const seed_folder& to) {
    const auto add = [&to](const std::string& name, std::uint8_t end, const link_description& told) {
        bytes seed{end};
        for (const std::byte each : told) seed.push_back(std::to_integer<std::uint8_t>(each));
        to.add(name, seed);
    };
    zmq::curve_key key{};
    key.fill(std::byte{0x5a});
    add("client_plain", 0, encode(zmq::client_description{}));
    add("client_curve", 0, encode(zmq::client_description{key}));
    add("client_with_a_key_of_zeros", 0, encode(zmq::client_description{zmq::curve_key{}}));
    add("server_plain", 1, encode(zmq::server_description{4711, 3, std::nullopt}));
    add("server_curve", 1, encode(zmq::server_description{4711, 3, key}));
    add("server_without_a_port", 1, encode(zmq::server_description{0, 3, key}));
    to.add("empty", bytes{});
}

void key_seeds(const seed_folder& to) {
    // The example pair of ZeroMQ's own documentation (zmq_curve manual page); it protects nothing.
    const std::string key = "ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
    to.add("pair", std::string("metadata\ncurve\n    public-key = \"x\"\n    secret-key = \"y\"\n"));
    to.add("public", key + " alice\n");
    to.add("bare", key);
    to.add("private", std::string("-----BEGIN PRIVATE KEY-----\n"
                                  "MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n"
                                  "-----END PRIVATE KEY-----\n"));
    to.add("ssh", std::string("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me\n"));
    to.add("list", key + " alice\n# a comment\n\n" + key + "\r\n");
    to.add("not_a_key", std::string("ed25519:short\n"));
    to.add("no_end", key.substr(0, key.size() - 1));
}

namespace {

bytes as_it_travels(const verbs::endpoint& e) {
    const auto sent = verbs::to_bytes(e);
    const auto* from = reinterpret_cast<const std::uint8_t*>(sent.data());
    return {from, from + sent.size()};
}

}  // namespace

void verbs_seeds(const seed_folder& to) {
    verbs::endpoint e;
    e.mtu = 5;
    e.lid = 3;
    e.queue_pair = 0x1234;
    e.first_psn = 0xabcdef;
    e.slots_address = 0x7f12'3456'7000;
    e.slots_stride = 4352;
    e.slots_key = 0x4711;
    e.slots = 8;
    to.add("infiniband", as_it_travels(e));
    e.layer = verbs::link_layer::ethernet;
    e.lid = 0;
    e.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3};
    to.add("ethernet", as_it_travels(e));
    wire::response_target_extension placed;
    placed.value = {0x7f12'3456'7000, 65536, 0x4711, 0};
    bytes target;
    append(target, placed);
    to.add("response_target", target);
    bytes behind;
    append(behind, wire::extension_head{77, 13, 0});
    behind.resize(behind.size() + 16, 0x5a);
    append(behind, placed);
    to.add("response_target_behind_another", behind);
    e.flags = verbs::payloads_apart;
    e.payloads_address = 0x7f12'4000'0000;
    e.payloads_stride = 4096;
    e.payloads_key = 0x4712;
    to.add("payloads_apart", as_it_travels(e));
}

/// Payloads as fuzz_tensors takes them: the reader's room, then the bytes.
void tensor_seeds(const seed_folder& to) {
    const auto add = [&to](const std::string& name, std::uint8_t room, std::vector<tensor> list) {
        std::vector<std::byte> payload(std::max<std::uint64_t>(place_tensors(list), 200));
        (void)describe(payload, list);
        bytes all{room};
        for (const std::byte each : payload) all.push_back(std::to_integer<std::uint8_t>(each));
        to.add(name, all);
        all.resize(all.size() - 1);
        to.add(name + "_cut", all);
    };
    const data_type half{type_code::floating, 16, 1};
    add("matrix", 4, {{{}, 2, 0, {3, 5}}});
    add("number", 1, {{{}, 0, 0, {}}});
    add("several", 4, {{{}, 1, 0, {7}}, {half, 3, 0, {2, 2, 2}}, {{type_code::boolean, 1, 1}, 1, 0, {9}}});
    add("nothing", 4, {{{}, 2, 0, {0, 0xffffffff}}});
    add("packed", 4, {{{type_code::float4_e2m1fn, 4, 2}, 1, 0, {5}}});
    add("eight_sizes", 4, {{half, 8, 0, {1, 2, 1, 2, 1, 2, 1, 2}}});
    add("too_many_for_the_room", 1, {{{}, 1, 0, {1}}, {{}, 1, 0, {1}}});
    const auto in_front = [&to](const std::string& name, std::uint8_t room, const std::vector<tensor>& list) {
        const auto count = static_cast<std::uint32_t>(list.size());
        const std::size_t size = wire::tensor_extension_bytes(list.data(), count);
        std::vector<std::byte> extension(size);
        wire::write_tensor_extension(extension.data(), list.data(), count);
        bytes all{room, 0, 1};
        for (const std::byte each : extension) all.push_back(std::to_integer<std::uint8_t>(each));
        to.add(name, all);
        all[1] = all[2] = 0;
        to.add(name + "_of_nothing", all);
    };
    in_front("in_front", 134, {{{}, 2, 0, {3, 5}}});
    in_front("in_front_several", 134, {{{}, 1, 64, {7}}, {half, 8, 8, {1, 2, 1, 2, 1, 2, 1, 2}}, {{}, 0, 252, {}}});
    in_front("in_front_too_many_for_the_room", 131, {{{}, 0, 0, {}}, {{}, 0, 4, {}}});
    bytes huge{4};
    append(huge, detail::tensor_table_head{detail::tensor_table_head::own_magic, 1, 1, 0});
    append(huge, tensor{{}, 4, 64, {0x10000, 0x10000, 0x10000, 0x10000}});
    huge.resize(300);
    to.add("product_of_0", huge);
}

}  // namespace accel::tests
