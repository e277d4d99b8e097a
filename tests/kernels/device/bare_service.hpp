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
#include <thread>

namespace accel::tests {

using rdma::testing::bare_client;

inline constexpr core::link_geometry shape{2, 256, 256};

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
    void expect_only_its_own_session_ends(const std::function<void(bare_client&)>& attack) {
        bare_client friendly(shape);
        connect(friendly, good_);
        bare_client evil(shape);
        int owner = 0;
        connect(evil, bad_, &owner);
        expect_served(friendly, 1);
        attack(evil);
        expect_loss(status::protocol_error, &owner);
        expect_served(friendly, 2);
        end(bad_);
        expect_place();
        expect_served(friendly, 3);
        end(good_);
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
    std::unique_ptr<core::connection> good_;
    std::unique_ptr<core::connection> bad_;
    std::thread kernel_;
    std::atomic<bool> ending_{false};
    std::atomic<bool> held_{false};  ///< answers
};

}  // namespace accel::tests
