// SPDX-License-Identifier: Apache-2.0
// What the peer of an shm link passes, writes into shared memory and sends. Byte 0: which end is tested. For a client:
// a byte for each descriptor that its server passes and one for the answer. Then steps: the peer writes bytes anywhere,
// or a message, or announces a slot, says that it sleeps, sends or leaves; this end sends, or looks what has come.
#include "core/tensor_description.hpp"
#include "core/trace_description.hpp"
#include "fuzz_target.hpp"
#include "unit/shm_peers.hpp"

#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

namespace {

using namespace accel;
using shm::testing::geometry;
using tests::require;

/// The end under test with the peer that the input plays.
class fuzzed_end {
  public:
    fuzzed_end(tests::input_reader& input, shm::testing::tested_link& link, const shm::testing::peer_hands& peer)
        : input_(input), link_(link), peer_(peer), own_(*context_of().allocate(own_bytes)) {}

    void run() {
        while (!input_.empty()) step(input_.byte() % 8);
        for (int i = 0; i < 4; ++i) look(i % 2 == 0);
    }

  private:
    static constexpr std::size_t own_bytes = 256;
    static context& context_of() {
        static context made = *context::open({.log = log_level::off});
        return made;
    }
    [[nodiscard]] bool is_client() const { return link_.config.role == core::link_role::client; }

    void step(int what) {
        if (what == 0) write();
        if (what == 1) write_message();
        if (what == 2) announce();
        if (what == 3) sleep();
        if (what == 4) talk();
        if (what == 5) send();
        if (what >= 6) look(what == 7);
    }
    void write() {
        const std::span<std::byte> all = peer_.writes->all();
        const std::size_t at = (std::size_t{input_.byte()} << 8 | input_.byte()) % all.size();
        const auto bytes = input_.bytes(std::min<std::size_t>(input_.byte(), all.size() - at));
        if (!bytes.empty()) std::memcpy(all.data() + at, bytes.data(), bytes.size());
    }
    /// A header as it should be, but for what the input says; its extensions are the input's.
    void write_message() {
        core::slot_header header;
        const std::uint32_t slot = input_.byte() % geometry.slots;
        header.slot = slot + (input_.byte() == 255 ? 1 : 0);
        header.generation = input_.byte() % 4;
        header.length = std::uint64_t{input_.byte()} * 9;
        header.extension_bytes = static_cast<std::uint16_t>(input_.byte() & ~7U);
        header.kind = is_client() ? core::message_kind::response : core::message_kind::request;
        peer_.writes->write_header(slot, header);
        const std::size_t room = std::min<std::size_t>(header.extension_bytes, core::extension_room);
        const auto extensions = input_.bytes(room);
        if (!extensions.empty()) std::memcpy(peer_.writes->header(slot) - room, extensions.data(), extensions.size());
    }
    void announce() {
        const std::uint8_t choice = input_.byte();
        peer_.writes->announce(choice < 250 ? choice % geometry.slots : 0xffff'ff00U + choice);
    }
    void sleep() { peer_.sleep->store(input_.byte()); }
    void talk() {
        const std::uint8_t choice = input_.byte();
        if (choice == 255) return peer_.socket->reset();
        if (choice == 254) return peer_.writes->head().closed.store(1);
        const std::vector<std::byte> noise(std::size_t{choice} * 4 + 1);
        (void)::send(peer_.socket->get(), noise.data(), noise.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    /// A request whose response is wanted elsewhere, or an answer.
    void send() {
        const std::uint32_t slot = input_.byte() % geometry.slots;
        const std::size_t wanted = input_.byte();
        if (!is_client()) {
            (void)link_.path->deliver_plain(slot, {link_.path->send().payload(slot), wanted});
            return;
        }
        core::slot_header header;
        header.slot = slot;
        header.generation = input_.byte() % 4;
        std::memcpy(link_.config.send->header(slot), &header, sizeof header);
        core::outgoing message;
        message.slot = slot;
        message.response_into = *own_.part(0, wanted);
        (void)link_.path->deliver(message);
        if (header.generation == 3) (void)link_.path->retract(slot);
    }
    void look(bool notice) {
        for (const core::link_event& each : link_.poll(notice)) {
            require(!lost_, "nothing comes behind a loss");
            if (each.kind == core::event_kind::lost)
                lost_ = true;
            else
                check(each);
        }
    }
    void check(const core::link_event& got) const {
        require(got.kind == core::event_kind::arrived, "it is an arrival");
        const std::uint32_t slot = got.header.slot;
        require(slot < geometry.slots, "the slot exists");
        require(got.payload.size() == got.header.length, "the length is the header's");
        const auto within = [&](std::span<const std::byte> room) {
            return got.payload.data() >= room.data() &&
                   got.payload.data() + got.payload.size() <= room.data() + room.size();
        };
        const bool elsewhere = is_client() && within({own_.data(), own_bytes});
        require(elsewhere || within(link_.path->receive().room(slot)), "the payload lies in its slot or where wanted");
        unsigned sum = 0;
        for (const std::byte b : got.payload) sum += std::to_integer<unsigned>(b);
        require(sum <= 255 * geometry.response_bytes, "all of it can be read");
        if (got.header.extension_bytes > 0) read_extensions(got, slot);
    }
    void read_extensions(const core::link_event& got, std::uint32_t slot) const {
        const std::byte* const header =
            is_client() ? link_.config.receive->header(slot) : link_.path->receive().header(slot);
        std::array<tensor, max_tensors> list;
        std::size_t count = 0;
        const status read = core::read_description(header, got.header.generation, got.payload, true, list, count);
        for (std::size_t i = 0; read == status::ok && i < count; ++i)
            require(lies_within(list[i], got.payload.size()), "a tensor lies in its payload");
        trace_context trace;
        if (core::read_trace(header, got.header.generation, trace) == status::ok)
            require(trace.valid(), "only a valid trace is read");
    }

    tests::input_reader& input_;
    shm::testing::tested_link& link_;
    shm::testing::peer_hands peer_;
    region own_;
    bool lost_ = false;
};

/// A descriptor that is not what the client expects; none: it is.
std::optional<core::unique_fd> wrong_descriptor(std::uint8_t choice, std::size_t bytes) {
    const int seals = shm::testing::all_size_seals;
    switch (choice % 16) {
        case 1:
            return shm::testing::sealed_memory(bytes, seals & ~F_SEAL_SHRINK);
        case 2:
            return shm::testing::sealed_memory(bytes, seals & ~F_SEAL_GROW);
        case 3:
            return shm::testing::sealed_memory(bytes, seals & ~F_SEAL_SEAL);
        case 4:
            return shm::testing::sealed_memory(bytes - 1, seals);
        case 5:
            return shm::testing::sealed_memory(bytes * 2, seals);
        case 6:
            return shm::testing::sealed_memory(0, seals);
        case 7:
            return core::unique_fd(::open("/dev/zero", O_RDWR | O_CLOEXEC));
        case 8:
            return core::unique_fd(::dup(0));
        default:
            return std::nullopt;
    }
}

void test_client(tests::input_reader& input) {
    shm::testing::hostile_server server;
    const std::array<std::size_t, 3> sizes{server.requests_layout.bytes, server.responses_layout.bytes,
                                           shm::page_bytes};
    std::array<std::optional<core::unique_fd>, 3> wrong;
    bool right = true;
    for (std::size_t i = 0; i < wrong.size(); ++i) {
        wrong[i] = wrong_descriptor(input.byte(), sizes[i]);
        if (wrong[i] && wrong[i]->open()) server.passes[i] = wrong[i]->get();
        right = right && !wrong[i];
    }
    const std::uint8_t answer = input.byte();
    if (answer % 4 == 1) server.passes.resize(answer / 4 % 3);
    if (answer % 4 == 2) {
        const auto said = std::as_bytes(input.bytes(answer / 4));
        server.answers.assign(said.begin(), said.end());
    }
    const bool connected = server.connect().ok();
    require(right || !connected, "other memory is never mapped");
    if (!connected) return;
    fuzzed_end(input, server, {&server.writes, &server.sleep(), &server.socket}).run();
}

void test_server(tests::input_reader& input) {
    shm::testing::hostile_client client;
    require(client.ready, "it connects");
    fuzzed_end(input, client, {&client.writes, &client.writes.head().sleep, &client.socket}).run();
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tests::input_reader input(data, size);
    input.byte() % 2 == 0 ? test_server(input) : test_client(input);
    return 0;
}
