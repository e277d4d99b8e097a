// SPDX-License-Identifier: Apache-2.0
// What the peer of an shm link passes, writes into shared memory and sends. Byte 0: which end is tested, and whether
// the server has slots on a GPU too (a stand-in for one). For a client: a byte for each descriptor that its server
// passes and one for the answer. Then steps: the peer writes bytes anywhere, or a message, or announces a slot, says
// that it sleeps, sends or leaves; this end sends, or looks what has come.
#include "core/context_state.hpp"
#include "core/internals.hpp"
#include "core/metadata_description.hpp"
#include "core/tensor_description.hpp"
#include "core/trace_description.hpp"
#include "fuzz_target.hpp"
#include "gpu/fake_gpu.hpp"
#include "unit/shm_peers.hpp"

#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace accel;
using shm::entry_flag::payload_on_gpu;
using shm::entry_flag::response_on_gpu;
using shm::testing::geometry;
using tests::require;
using fakes = std::shared_ptr<tests::fake_accelerator>;

fakes open_fake() {
    auto made = std::make_shared<tests::fake_accelerator>();
    (void)made->device();
    return made;
}

/// The end under test with the peer that the input plays.
class fuzzed_end {
  public:
    fuzzed_end(tests::input_reader& input, shm::testing::tested_link& link, const shm::testing::peer_hands& peer)
        : input_(input), link_(link), peer_(peer), own_(*context_of().allocate(own_bytes)) {}

    void run() {
        while (!input_.empty()) step(input_.byte() % 8);
        for (int i = 0; i < 4; ++i) look(i % 2 == 0);
    }
    /// A server with slots on a GPU.
    void run_with(const std::array<std::shared_ptr<core::slot_memory>, 2>& on_gpu) {
        on_gpu_ = on_gpu;
        run();
    }
    /// A client on a GPU, which has mapped such slots or not.
    void run_with(context& owner, tests::fake_device& gpu) {
        own_ = *owner.allocate(own_bytes, memory_kind::cuda(0));
        gpu_ = &gpu;
        run();
        settle();
        look(false);
        require(link_.path->close(), "no copy is under way");
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
    [[nodiscard]] bool knows_gpu() const { return gpu_ != nullptr || on_gpu_[0] != nullptr; }
    void announce() {
        const std::uint8_t choice = input_.byte();
        const std::uint8_t flags = knows_gpu() ? input_.byte() : 0;
        peer_.writes->announce((choice < 250 ? choice % geometry.slots : 0xffff'ff00U + choice) |
                               ((flags & 1U) != 0 ? payload_on_gpu : 0) | ((flags & 2U) != 0 ? response_on_gpu : 0));
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
        if (gpu_ != nullptr) return send_from_gpu(slot, wanted);
        if (!is_client()) {
            const auto& from = wants_gpu_[slot] ? *on_gpu_[1] : link_.path->send();
            (void)link_.path->deliver_plain(slot, {from.payload(slot), wanted});
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
    /// Once for each slot: the core uses none again before its answer. The copies go on or are held.
    void send_from_gpu(std::uint32_t slot, std::size_t wanted) {
        const std::uint8_t how = input_.byte();
        gpu_->held = (how & 1U) != 0;
        if ((how & 2U) != 0) (void)link_.path->retract(slot);
        if (std::exchange(used_[slot], true)) return;
        core::slot_header header;
        header.slot = slot;
        header.length = wanted / 2;
        header.generation = 1;
        std::memcpy(link_.config.send->header(slot), &header, sizeof header);
        const slice payload = *own_.part(0, wanted / 2);
        core::outgoing message;
        message.slot = slot;
        message.payload = payload.bytes();
        message.region = payload.region();
        wants_gpu_[slot] = (how & 4U) != 0;
        if (wants_gpu_[slot]) message.response_into = *own_.part(own_bytes / 2, wanted / 2);
        (void)link_.path->deliver(message);
        if ((how & 8U) != 0) settle();
    }
    void settle() {
        gpu_->held = false;
        while (gpu_->at_work > 0) std::this_thread::yield();
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
    void check(const core::link_event& got) {
        const std::uint32_t slot = got.header.slot;
        require(slot < geometry.slots, "the slot exists");
        if (gpu_ != nullptr && got.kind == core::event_kind::buffer_released) return;
        require(got.kind == core::event_kind::arrived, "it is an arrival");
        require(got.payload.size() == got.header.length, "the length is the header's");
        const auto within = [&](std::span<const std::byte> room) {
            return got.payload.data() >= room.data() &&
                   got.payload.data() + got.payload.size() <= room.data() + room.size();
        };
        const auto on_host = [&] { return within(link_.path->receive().room(slot)); };
        if (gpu_ != nullptr) {
            const bool good = wants_gpu_[slot] && got.header.code == status::ok;
            require(got.payload.empty() || on_host() || good, "only a response that is wanted there lies on the GPU");
        } else if (is_client()) {
            require(on_host() || within({own_.data(), own_bytes}), "the payload lies in its slot or where wanted");
        } else {
            require(on_host() || (on_gpu_[0] && within(on_gpu_[0]->room(slot))), "the payload lies in its slot");
            wants_gpu_[slot] = !got.response_room.empty();
            require(!wants_gpu_[slot] || got.response_room.data() == on_gpu_[1]->room(slot).data(),
                    "the response goes into its slot");
        }
        unsigned sum = 0;
        for (const std::byte b : got.payload) sum += std::to_integer<unsigned>(b);
        require(sum <= 255 * geometry.response_bytes, "all of it can be read");
        if (got.header.extension_bytes > 0) read_extensions(got, slot);
    }
    void read_extensions(const core::link_event& got, std::uint32_t slot) const {
        const std::byte* const header =
            is_client() ? link_.config.receive->header(slot) : link_.path->receive().header(slot);
        std::array<tensor, max_tensors> list;
        if (const auto read = core::read_description(header, got.header.generation, got.payload, true, list))
            for (const tensor& each : *read)
                require(lies_within(each, got.payload.size()), "a tensor lies in its payload");
        if (const auto trace = core::read_trace(header, got.header.generation))
            require(trace->valid(), "only a valid trace is read");
        std::array<char, max_baggage_bytes> room;
        const auto baggage = core::read_baggage(header, got.header.generation, room);
        require(baggage ? !baggage->empty() : baggage.error() != status::message_too_large, "baggage has its room");
        const std::size_t after = core::metadata_after(header, got.header.generation, got.payload.size());
        require(after <= got.payload.size(), "metadata lies in its payload");
        metadata_room entries;
        const auto beside = core::read_metadata(header, got.header.generation, entries);
        require(!beside || core::metadata_bytes(*beside) > 0, "only valid metadata is read");
        const auto behind = core::read_metadata(got.payload.last(after), entries);
        require(!behind || core::metadata_bytes(*behind) == after, "all of it is read");
    }

    tests::input_reader& input_;
    shm::testing::tested_link& link_;
    shm::testing::peer_hands peer_;
    region own_;
    std::array<std::shared_ptr<core::slot_memory>, 2> on_gpu_;  ///< of a server: requests, responses
    tests::fake_device* gpu_ = nullptr;                         ///< of a client
    std::array<bool, geometry.slots> wants_gpu_{};              ///< the response
    std::array<bool, geometry.slots> used_{};
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

void test_server(tests::input_reader& input, const fakes& gpus) {
    shm::testing::hostile_client client{gpus};
    require(client.ready, "it connects");
    fuzzed_end(input, client, {&client.writes, &client.writes.head().sleep, &client.socket}).run_with(client.on_gpu);
}

/// Slots on a GPU as their server passes them.
class passed_slots {
  public:
    passed_slots() {
        for (const std::size_t bytes : {geometry.request_bytes, geometry.response_bytes}) {
            const std::size_t all = geometry.slots * core::slot_memory::device_stride(bytes);
            made_.push_back(*gpus_->device().allocate_shareable(all));
            passed_.push_back(*gpus_->device().share(made_.back()));
        }
    }
    [[nodiscard]] int operator[](std::size_t which) const { return passed_[which].get(); }

  private:
    fakes gpus_ = open_fake();
    std::vector<std::byte*> made_;
    std::vector<core::unique_fd> passed_;
};

void test_client_on_gpu(tests::input_reader& input) {
    static const passed_slots slots;
    const fakes gpus = open_fake();
    context owner = *context::open({.log = log_level::off});
    core::internals::state_of(owner)->replace_devices(gpus);
    shm::testing::hostile_server server{gpus};
    std::array<std::optional<core::unique_fd>, 2> wrong;
    bool right = true;
    for (std::size_t i = 0; i < wrong.size(); ++i) {
        wrong[i] = wrong_descriptor(input.byte(), shm::page_bytes);
        const bool passed = wrong[i] && wrong[i]->open();
        server.passes.push_back(passed ? wrong[i]->get() : slots[i]);
        right = right && !passed;
    }
    const bool half = input.byte() == 255;
    if (half) server.passes.pop_back();
    const bool connected = server.connect().ok();
    require(connected != half, "all descriptors come or none, and what cannot be mapped is not used");
    if (!connected) return;
    region own = *owner.allocate(1, memory_kind::cuda(0));
    require(right == server.path->reaches(*own.whole().region(), false), "other memory is never used");
    fuzzed_end(input, server, {&server.writes, &server.sleep(), &server.socket}).run_with(owner, gpus->device());
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tests::input_reader input(data, size);
    switch (input.byte() % 4) {
        case 0:
            test_server(input, nullptr);
            break;
        case 1:
            test_client(input);
            break;
        case 2:
            test_server(input, open_fake());
            break;
        default:
            test_client_on_gpu(input);
    }
    return 0;
}
