#include "core/log.hpp"
#include "device/harness/engine.hpp"
#include "verbs/completion_queue.hpp"
#include "verbs/mlx5_driver.hpp"
#include "verbs/receive_queue.hpp"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// The engine that posts to mlx5 queues where they lie.
namespace accel::tests {
namespace {

/// Of all sessions of a worker. A burst beyond them waits in the senders' devices.
constexpr std::uint32_t shared_receives = 8192;
constexpr std::uint32_t most_completions = 131'072;
constexpr std::uint32_t least_send_requests = 16;

class direct_engine;

class direct_connection final : public harness_connection {
  public:
    direct_connection(direct_engine& owner, verbs::queue_pair made) noexcept
        : engine_(owner), queue_pair_(std::move(made)) {
        port_.by = device::detail::engine::direct;
        port_.direct.queue = queue_pair_.located()->sends;
        whole_.resize(port_.direct.queue.wqebbs);
        port_.direct.ready_requests = whole_.data();
        port_.direct.state = &state_;
    }
    ~direct_connection() override;
    direct_connection(const direct_connection&) = delete;
    direct_connection& operator=(const direct_connection&) = delete;
    [[nodiscard]] verbs::queue_pair& queue_pair() noexcept override { return queue_pair_; }
    [[nodiscard]] const device::detail::send_port& sends() const noexcept override { return port_; }
    [[nodiscard]] result<void> open(std::uint32_t /*place*/) override { return {}; }
    void quiet() noexcept override {
        if (auto done = queue_pair_.reset(); !done)
            core::log().limited().error("gpu: {}", done.error().message);
    }

  private:
    direct_engine& engine_;
    verbs::queue_pair queue_pair_;
    mlx5::shared_send_queue_state state_;
    std::vector<mlx5::ready_request> whole_;
    device::detail::send_port port_;
};

class direct_engine final : public harness_engine {
  public:
    explicit direct_engine(std::shared_ptr<verbs::device> on) noexcept : device_(std::move(on)) {}
    [[nodiscard]] result<void> prepare(verbs::async_listener* listener);

    [[nodiscard]] device::detail::completion_port completions() const noexcept override {
        device::detail::completion_port out;
        out.by = device::detail::engine::direct;
        out.direct = completions_->located();
        return out;
    }
    [[nodiscard]] mlx5::shared_receive_queue_ref receives() const noexcept override {
        return receives_->located();
    }
    [[nodiscard]] std::uint32_t most_arrivals() const noexcept override { return receives_->depth(); }
    [[nodiscard]] result<std::unique_ptr<harness_connection>> connect(
        ibv_pd* domain, std::uint32_t slots, verbs::async_listener* listener) override;
    [[nodiscard]] int event_fd() const noexcept override { return completions_->event_fd(); }
    [[nodiscard]] bool arm() noexcept override { return completions_->request_event(); }
    void disarm() noexcept override { completions_->take_events(); }

    /// Any thread: of sends that end by failing, each makes a completion.
    void give_back(std::uint32_t completions) noexcept { left_ += completions; }

  private:
    [[nodiscard]] bool take_away(std::uint32_t completions) noexcept;

    std::shared_ptr<verbs::device> device_;
    std::unique_ptr<verbs::receive_queue> receives_;
    std::unique_ptr<verbs::completion_queue> completions_;
    std::atomic<std::uint32_t> left_{0};  ///< completions that no connection may make
};

direct_connection::~direct_connection() {
    engine_.give_back(port_.direct.queue.wqebbs);
}

result<void> direct_engine::prepare(verbs::async_listener* listener) {
    auto receives = verbs::receive_queue::create(device_, shared_receives);
    if (!receives) return receives.error();
    receives_ = std::move(*receives);
    verbs::empty_receives chain;
    (void)receives_->post(receives_->depth(), chain);
    auto completions = verbs::completion_queue::create(device_, most_completions, listener);
    if (!completions) return completions.error();
    completions_ = std::move(*completions);
    left_ = completions_->depth() - std::min(completions_->depth(), receives_->depth());
    return {};
}

bool direct_engine::take_away(std::uint32_t completions) noexcept {
    std::uint32_t left = left_;
    while (left >= completions) {
        if (left_.compare_exchange_weak(left, left - completions)) return true;
    }
    return false;
}

result<std::unique_ptr<harness_connection>> direct_engine::connect(ibv_pd* domain, std::uint32_t slots,
                                                                   verbs::async_listener* listener) {
    const auto deepest = static_cast<std::uint32_t>(device_->limits().max_qp_wr);
    verbs::queue_sizes sizes;
    // A response may take two requests, and what is not heard of yet takes room too.
    sizes.send = std::min(std::max(slots * 4, least_send_requests), deepest);
    auto made =
        verbs::queue_pair::create(device_, domain, completions_->get(), receives_->get(), sizes, listener);
    if (!made) return made.error();
    const std::uint32_t blocks = made->located()->sends.wqebbs;
    if (!take_away(blocks)) {
        return error{
            status::overloaded, 0,
            fmt::format("gpu: the completion queue of {} entries cannot hold the {} slots of one more "
                        "session; use more workers",
                        completions_->depth(), slots)};
    }
    return std::unique_ptr<harness_connection>(new direct_connection(*this, std::move(*made)));
}

}  // namespace

result<std::unique_ptr<harness_engine>> make_direct_engine(std::shared_ptr<verbs::device> on,
                                                           verbs::async_listener* listener) {
    auto made = std::make_unique<direct_engine>(std::move(on));
    if (auto ready = made->prepare(listener); !ready) return ready.error();
    return std::unique_ptr<harness_engine>(std::move(made));
}

}  // namespace accel::tests
