#include "device/harness/engine.hpp"
#include "verbs/proxy.hpp"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

/// The engine that posts by libibverbs, on any device.
namespace accel::tests {
namespace {

/// Of all sessions of a worker. A burst beyond them waits in the senders' devices.
constexpr std::uint32_t shared_receives = 2048;
/// Likewise; where the device's completion queues are shorter there are fewer.
constexpr std::uint32_t most_sends = 57'344;
constexpr std::uint32_t ring_entries = 4096;
constexpr std::uint32_t least_send_requests = 16;

class proxied_connection final : public harness_connection {
  public:
    proxied_connection(verbs::proxy_engine& engine, verbs::queue_pair made, std::uint32_t descriptors)
        : engine_(engine), ring_(descriptors), queue_pair_(std::move(made)) {
        port_.by = device::detail::engine::proxy;
        port_.proxied.ring = ring_.data();
        port_.proxied.count = descriptors;
        port_.proxied.state = &state_;
        port_.proxied.released = &released_;
    }
    ~proxied_connection() override { engine_.remove(queue_pair_); }
    proxied_connection(const proxied_connection&) = delete;
    proxied_connection& operator=(const proxied_connection&) = delete;
    [[nodiscard]] verbs::queue_pair& queue_pair() noexcept override { return queue_pair_; }
    [[nodiscard]] const device::detail::send_port& sends() const noexcept override { return port_; }
    [[nodiscard]] result<void> open(std::uint32_t place) override {
        port_.proxied.queue_pair = place;
        return engine_.add(queue_pair_, {ring_, &released_, 0, place});
    }
    void quiet() noexcept override { engine_.remove(queue_pair_); }

  private:
    verbs::proxy_engine& engine_;
    std::vector<proxy::send_descriptor> ring_;
    std::uint32_t released_ = 0;
    proxy::send_queue_state state_;
    device::detail::send_port port_;
    verbs::queue_pair queue_pair_;  ///< ends before its ring does
};

class proxied_engine final : public harness_engine {
  public:
    explicit proxied_engine(std::shared_ptr<verbs::device> on) : device_(std::move(on)), ring_(ring_entries) {
        completions_.by = device::detail::engine::proxy;
        completions_.proxied = {ring_.data(), ring_entries, &consumed_, &state_, &first_failure_};
    }
    [[nodiscard]] result<void> prepare() {
        verbs::proxy_options wanted;
        wanted.receives = shared_receives;
        wanted.sends = most_sends;
        auto made = verbs::proxy_engine::create(device_, {ring_, &consumed_}, wanted);
        if (!made) return made.error();
        engine_ = std::move(*made);
        return {};
    }

    [[nodiscard]] device::detail::completion_port completions() const noexcept override {
        return completions_;
    }
    [[nodiscard]] mlx5::shared_receive_queue_ref receives() const noexcept override { return {}; }
    [[nodiscard]] std::uint32_t most_arrivals() const noexcept override { return engine_->receive_depth(); }
    [[nodiscard]] result<std::unique_ptr<harness_connection>> connect(
        ibv_pd* domain, std::uint32_t slots, verbs::async_listener* listener) override;
    bool turn() noexcept override { return engine_->turn(); }
    [[nodiscard]] bool has_failed() const noexcept override { return engine_->has_failed(); }
    [[nodiscard]] int event_fd() const noexcept override { return engine_->event_fd(); }
    [[nodiscard]] bool arm() noexcept override { return engine_->arm(); }
    void disarm() noexcept override { engine_->disarm(); }

  private:
    std::shared_ptr<verbs::device> device_;
    std::vector<proxy::completion_entry> ring_;
    std::uint32_t consumed_ = 0;
    std::uint64_t first_failure_ = 0;
    proxy::completion_queue_state state_;
    device::detail::completion_port completions_;
    std::unique_ptr<verbs::proxy_engine> engine_;
};

result<std::unique_ptr<harness_connection>> proxied_engine::connect(ibv_pd* domain, std::uint32_t slots,
                                                                    verbs::async_listener* listener) {
    const auto deepest = static_cast<std::uint32_t>(device_->limits().max_qp_wr);
    verbs::queue_sizes sizes;
    // A response may take two requests.
    sizes.send = std::min(std::max(slots * 2, least_send_requests), deepest);
    auto made = verbs::queue_pair::create(device_, domain, engine_->completions(), engine_->receives(), sizes,
                                          listener);
    if (!made) return made.error();
    // Of a ring, half comes back only when the other half has been used.
    const std::uint32_t descriptors = std::bit_ceil(std::min(sizes.send * 2, proxy::max_entries));
    return std::unique_ptr<harness_connection>(
        new proxied_connection(*engine_, std::move(*made), descriptors));
}

}  // namespace

result<std::unique_ptr<harness_engine>> make_proxied_engine(std::shared_ptr<verbs::device> on) {
    auto made = std::make_unique<proxied_engine>(std::move(on));
    if (auto ready = made->prepare(); !ready) return ready.error();
    return std::unique_ptr<harness_engine>(std::move(made));
}

}  // namespace accel::tests
