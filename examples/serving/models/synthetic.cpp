// SPDX-License-Identifier: Apache-2.0
#include "serving/models/synthetic.hpp"

#include "serving/models/image.hpp"
#include "serving/models/synthetic_math.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <limits>
#include <optional>
#include <thread>

namespace accel::examples::serving {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

std::uint64_t hash_of(std::span<const std::byte> input) noexcept {
    std::uint64_t sum = 0;
    const std::size_t words = synthetic_words(input.size());
    for (std::size_t i = 0; i < words; ++i) sum += synthetic_part(synthetic_word(input.data(), input.size(), i), i);
    return synthetic_hash(sum, input.size());
}

/// The accelerator that all models of a process share: it does one inference after another.
class synthetic_device {
  public:
    /// When work of this length, given now, will have been done.
    steady_clock::time_point take(nanoseconds length) noexcept {
        const std::int64_t now = steady_clock::now().time_since_epoch().count();
        std::int64_t free_from = free_from_.load(std::memory_order_relaxed);
        std::int64_t end = 0;
        do end = std::max(now, free_from) + length.count();
        while (!free_from_.compare_exchange_weak(free_from, end, std::memory_order_relaxed));
        return steady_clock::time_point{nanoseconds{end}};
    }

  private:
    std::atomic<std::int64_t> free_from_ = std::numeric_limits<std::int64_t>::min();
};

synthetic_device& the_device() noexcept {
    static synthetic_device device;
    return device;
}

/// Sleeps, and spins for the last part, which no sleep meets.
void wait_until(steady_clock::time_point end) noexcept {
    constexpr std::chrono::microseconds unmet{60};
    if (end - steady_clock::now() > unmet) std::this_thread::sleep_until(end - unmet);
    while (steady_clock::now() < end) {
    }
}

void put_word(std::span<std::byte> to, std::uint64_t word) noexcept {
    std::memcpy(to.data(), &word, to.size());
}

void spread(std::uint64_t hash, std::span<std::byte> output) noexcept {
    std::size_t at = 0;
    for (; (at + 1) * 8 <= output.size(); ++at) put_word(output.subspan(at * 8, 8), synthetic_output(hash, at));
    put_word(output.subspan(at * 8), synthetic_output(hash, at));
}

/// The hash also says how long open outputs are.
void answer_open(const model_shapes& shapes, const model_job& job) noexcept {
    const std::uint64_t hash = hash_of(job.input);
    for (std::size_t i = 0; i < job.outputs.size(); ++i) {
        if (shapes.open[i] == max_tensor_rank) continue;
        std::uint32_t& length = job.outputs[i].shape[shapes.open[i]];
        length = static_cast<std::uint32_t>(hash % (std::uint64_t{length} + 1));
    }
    place_from_zero(job.outputs);
    spread(hash, job.output.first(payload_bytes(job.outputs)));
}

void answer_all(const model_shapes& shapes, std::span<const model_job> batch) noexcept {
    for (const model_job& each : batch)
        if (each.outputs.empty())
            synthetic_answer(each.input, each.output);
        else
            answer_open(shapes, each);
}

/// CPU time of this thread, so that others which share the cores make it no shorter.
nanoseconds thread_time() noexcept {
    timespec now{};
    (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds{now.tv_sec} + nanoseconds{now.tv_nsec};
}

class synthetic_model final : public model {
  public:
    synthetic_model(const model_shapes& shapes, const synthetic_options& options) : shapes_(shapes), options_(options) {
        if (takes_images(shapes)) images_.emplace(shapes.image, tensor_image(shapes));
    }

    const model_shapes& shapes() const noexcept override { return shapes_; }
    memory_kind memory() const noexcept override { return memory_kind::host(); }
    std::size_t max_batch() const noexcept override { return 1024; }

    result<void> preprocess(CUstream_st*, std::span<const std::byte> image, std::span<std::byte> input) override {
        if (!images_) return error{status::unsupported, 0, "the model '" + shapes_.name + "' does not take raw images"};
        images_->run(image, input);
        return {};
    }

    result<void> infer(CUstream_st*, std::span<const model_job> batch) override {
        const nanoseconds length = synthetic_duration(shapes_, batch.size(), options_.gflops_per_second);
        if (options_.pace == synthetic_pace::wait)
            infer_waiting(batch, length);
        else
            infer_busily(batch, length);
        return {};
    }

  private:
    void infer_waiting(std::span<const model_job> batch, nanoseconds length) const noexcept {
        const auto end = the_device().take(length);
        answer_all(shapes_, batch);
        wait_until(end);
    }
    void infer_busily(std::span<const model_job> batch, nanoseconds length) const noexcept {
        const nanoseconds end = thread_time() + length;
        answer_all(shapes_, batch);
        while (thread_time() < end) {
        }
    }

    model_shapes shapes_;
    synthetic_options options_;
    std::optional<image_preprocessor> images_;
};

}  // namespace

void synthetic_answer(std::span<const std::byte> input, std::span<std::byte> output) noexcept {
    spread(hash_of(input), output);
}

nanoseconds synthetic_duration(const model_shapes& shapes, std::size_t batch, double gflops_per_second) noexcept {
    const double seconds = shapes.gflops * static_cast<double>(batch) / gflops_per_second;
    return nanoseconds{static_cast<std::int64_t>(seconds * 1e9)};
}

std::unique_ptr<model> make_synthetic(const model_shapes& shapes, const synthetic_options& options) {
    return std::make_unique<synthetic_model>(shapes, options);
}

}  // namespace accel::examples::serving
