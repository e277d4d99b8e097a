// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/context_state.hpp"
#include "core/internals.hpp"
#include "core/registry.hpp"
#include "device/service_rig.hpp"
#include "kernels/kernel_host.hpp"
#include "rdma/bare_client.hpp"

#include <accel_transport/device/service.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

namespace accel::tests {

using rdma::testing::bare_client;

inline constexpr core::link_geometry shape{2, 256, 256};

/// A request that no correct client sends.
struct wrong_request {
    enum class to { any_service, shared, owned };
    const char* name;
    void (*spoil)(bare_client::request&);
    to whom = to::any_service;
    [[nodiscard]] bool can_be_sent(service_sharing sharing) const {
        return whom == to::any_service || (whom == to::owned) == (sharing == owned);
    }
};
inline constexpr wrong_request wrong_requests[] = {
    {"another slot", [](auto& sent) { sent.header.slot = 1; }},
    {"a slot beyond the last", [](auto& sent) { sent.header.slot = shape.slots; }},
    {"an older version", [](auto& sent) { --sent.header.version; }},
    {"a later version", [](auto& sent) { ++sent.header.version; }},
    {"a response", [](auto& sent) { sent.header.kind = core::message_kind::response; }},
    {"an unknown kind", [](auto& sent) { sent.header.kind = static_cast<core::message_kind>(99); }},
    {"an unknown flag", [](auto& sent) { sent.header.flags = 0x8000; }},
    {"both flags of parts", [](auto& sent) { sent.header.flags = core::header_flag::of_parts; }},
    {"an unknown status", [](auto& sent) { sent.header.code = static_cast<status>(status_count); }},
    {"longer than agreed", [](auto& sent) { sent.header.length = shape.request_bytes + 1; }},
    {"longer than 32 bits", [](auto& sent) { sent.header.length = std::uint64_t{1} << 32; }},
    {"more room than agreed", [](auto& sent) { sent.header.response_room = std::uint32_t{shape.response_bytes} + 1; }},
    {"more room than 31 bits", [](auto& sent) { sent.header.response_room = ~0U; }},
    {"extensions of 7 bytes", [](auto& sent) { sent.header.extension_bytes = 7; }},
    {"longer extensions than fit", [](auto& sent) { sent.header.extension_bytes = core::extension_room + 8; }},
    {"extensions of another length",
     [](auto& sent) {
         sent.extensions = sent.header.extension_bytes = sizeof sent.placed;
         sent.placed.head.length = 1000;
     }},
    {"a response target shorter than the room",
     [](auto& sent) {
         sent.extensions = sent.header.extension_bytes = sizeof sent.placed;
         sent.placed.value.address = 4096;
         sent.placed.value.length = sent.header.response_room - 1;
     }},
    {"an announced slot beyond the last", [](auto& sent) { sent.immediate = shape.slots; }, wrong_request::to::shared},
    {"an announcement alone", [](auto& sent) { sent.length = 0; }, wrong_request::to::shared},
    {"an arrival word ahead of the generation",
     [](auto& sent) {
         sent.repeats_generation = false;
         sent.header.arrival_word = sent.header.generation + 1;
     },
     wrong_request::to::owned},
};

/// A service of two places with a thread in its kernel's place, and clients that are made of bare verbs.
class bare_service : public ::testing::Test {
  protected:
    [[nodiscard]] virtual gpu_engine engine() const = 0;
    [[nodiscard]] virtual service_sharing sharing() const { return service_sharing::shared; }
    void SetUp() override {
        if (!has(engine())) GTEST_SKIP() << "this device has no queues to drive";
        core::poller_options wanted;
        wanted.verbs.ack_timeout = 8ms;
        wanted.verbs.ack_retries = 3;
        wanted.role = core::link_role::server;
        wanted.host = "127.0.0.1";
        gpu::kernel_setup kernels{nullptr, nullptr, 2, shape};
        kernels.options.engine = engine();
        kernels.options.sharing = sharing();
        poller_ = dynamic_cast<gpu::kernel_backend&>(backend_).open_service(wanted, kernels).value();
        kernel_ = std::thread([this, service = poller_->service()] {
            sharing() == service_sharing::shared ? serve(service) : serve_as_owner(service);
        });
    }
    void TearDown() override {
        if (!poller_) return;
        ending_ = true;
        kernel_.join();
        poller_->kernels_ended();
        good_.reset();
        bad_.reset();
        friendly_.reset();
    }
    void serve(const device::service_ref& service) {
        while (!ending_) {
            device::exchange_ref exchange;
            if (device::wait(service, exchange, 50'000) == status::ok) {
                while (held_) std::this_thread::sleep_for(100us);
                (void)device::reply(service, exchange, exchange.response_room);
            } else {
                std::this_thread::sleep_for(100us);
            }
        }
    }
    virtual void serve_as_owner(const device::service_ref& service) {
        device::owned_sessions mine;
        ASSERT_EQ(device::own(service, 0, 1, mine), status::ok);
        while (!ending_) {
            device::exchange_ref exchange;
            if (device::wait(mine, exchange, 50'000) == status::ok) {
                while (held_) std::this_thread::sleep_for(100us);
                (void)device::reply(mine, exchange, exchange.response_room);
            } else {
                std::this_thread::sleep_for(100us);
            }
        }
    }
    [[nodiscard]] result<std::unique_ptr<core::connection>> accept(const core::link_description& description,
                                                                   void* owner = nullptr) {
        core::link_config config;
        config.role = core::link_role::server;
        config.geometry = shape;
        config.owner = owner;
        auto link = poller_->open_connection(config);
        if (!link) return link.error();
        if (auto attached = (*link)->attach({1, {}, {}, description}, core::never); !attached) return attached.error();
        (*link)->activate();
        return link;
    }
    void connect(bare_client& client, std::unique_ptr<core::connection>& link, void* owner = nullptr,
                 std::uint32_t receives = 16) {
        link = accept(client.describe(), owner).value();
        client.connect(link->describe(), receives);
    }
    void end(std::unique_ptr<core::connection>& link) {
        EXPECT_TRUE(eventually(patience(5s), [&] { return link->close(); }));
        link.reset();
    }
    static void expect_served(bare_client& client, std::uint32_t generation) {
        ask(client, generation);
        expect_answered(client, generation);
    }
    static void ask(bare_client& client, std::uint32_t generation) {
        auto request = client.correct(1);
        request.header.generation = generation;
        request.header.deadline_ns = INT64_MAX;
        client.post(request);
        EXPECT_EQ(client.outcome(), mlx5::syndrome::none);
    }
    static void expect_answered(bare_client& client, std::uint32_t generation) {
        EXPECT_TRUE(eventually(patience(5s), [&] { return client.answer(1).generation == generation; }));
        EXPECT_EQ(client.answer(1).kind, core::message_kind::response);
        EXPECT_EQ(client.answer(1).code, status::ok);
        EXPECT_EQ(client.answer(1).length, client.correct(1).header.response_room);
    }
    /// The bad session, and no other, has ended.
    void expect_loss(status reason, const void* owner) {
        std::array<core::link_event, 16> events;
        std::size_t count = 0;
        EXPECT_TRUE(eventually(patience(20s), [&] { return (count = poller_->poll(events)) > 0; }));
        ASSERT_EQ(count, 1U);
        EXPECT_EQ(events[0].kind, core::event_kind::lost);
        EXPECT_EQ(events[0].reason, reason);
        EXPECT_EQ(events[0].owner, owner);
    }
    /// A place is good for another session.
    void expect_place() {
        bare_client next(shape);
        connect(next, bad_);
        expect_served(next, 1);
        end(bad_);
    }
    /// Another client is served before and after each attack.
    void expect_only_its_own_session_ends(const std::function<void(bare_client&)>& attack) {
        constexpr std::uint32_t most = 12;  // it has receives for 16 answers
        if (friendly_ && friendly_generation_ >= most) {
            end(good_);
            friendly_.reset();
        }
        if (!friendly_) {
            friendly_generation_ = 0;
            friendly_.emplace(shape);
            connect(*friendly_, good_);
        }
        bare_client evil(shape);
        int owner = 0;
        connect(evil, bad_, &owner);
        expect_served(*friendly_, ++friendly_generation_);
        attack(evil);
        expect_loss(status::protocol_error, &owner);
        expect_served(*friendly_, ++friendly_generation_);
        end(bad_);
        expect_place();
    }
    /// Each of `wrong_requests` that this service can get ends its session, whatever came before.
    void expect_wrong_requests_to_end_their_session() {
        for (const wrong_request& each : wrong_requests) {
            if (!each.can_be_sent(sharing())) continue;
            for (const std::uint32_t served_before : {0U, 3U}) {
                SCOPED_TRACE(::testing::Message() << each.name << ", after " << served_before);
                expect_only_its_own_session_ends([&](bare_client& client) {
                    for (std::uint32_t i = 1; i <= served_before; ++i) expect_served(client, i);
                    auto request = client.correct(0);
                    request.header.generation = 7;
                    each.spoil(request);
                    client.post(request);
                });
            }
        }
    }
    /// Beside one that sends for ever and takes no answer, others are served, and its place is good for the next.
    void expect_others_beside_one_that_never_stops() {
        bare_client friendly(shape);
        connect(friendly, good_);
        bare_client evil(shape);
        connect(evil, bad_, nullptr, 0);
        for (std::uint32_t i = 1; i < 600; ++i) {
            auto request = evil.correct(i % shape.slots);
            request.header.generation = i;
            request.header.deadline_ns = INT64_MAX;
            evil.post(request);
            ASSERT_EQ(evil.outcome(), mlx5::syndrome::none);
            if (i % 60 == 0) expect_served(friendly, i / 60);
        }
        end(bad_);
        expect_place();
        expect_served(friendly, 100);
        end(good_);
    }

    context context_ = context::open({.log = log_level::off}).value();
    core::backend& backend_ = *core::internals::state_of(context_)->find_backend("gpu");
    std::unique_ptr<gpu::kernel_service> poller_;
    std::optional<bare_client> friendly_;
    std::uint32_t friendly_generation_ = 0;
    std::unique_ptr<core::connection> good_;
    std::unique_ptr<core::connection> bad_;
    std::thread kernel_;
    std::atomic<bool> ending_{false};
    std::atomic<bool> held_{false};  ///< answers
};

}  // namespace accel::tests
