// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/model_server/batcher.hpp"
#include "serving/model_server/request_check.hpp"
#include "serving/models/model.hpp"

#include <accel_transport/context.hpp>
#include <accel_transport/server.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace accel::examples::serving {

class stream_buffers;

/// How a model is served.
struct serving_options {
    /// On the host: threads of the model's own. 0: a worker of the server infers itself, which takes the least time but
    /// receives nothing meanwhile.
    std::uint32_t threads = 0;
    std::size_t max_batch = 1;            ///< more: requests are collected
    std::chrono::nanoseconds max_wait{};  ///< of a batch's first request
    std::size_t max_waiting = 1024;       ///< requests in the queue of a batcher
};

struct served_statistics {
    std::uint64_t requests = 0;
    std::uint64_t errors = 0;  ///< of the requests
    batch_statistics batches;
    replay_statistics replays{};
};
void add(served_statistics& to, const served_statistics& more) noexcept;

/// A loaded model and its way from a request to an answer: check, preprocess, infer, describe, reply. Any number of
/// workers may give it requests at once.
class served_model {
  public:
    /// `ctx`: for memory on the model's GPU. `out_of_memory`; `unsupported`: a GPU's models take no batches.
    [[nodiscard]] static result<std::unique_ptr<served_model>> create(context& ctx, std::unique_ptr<model> loaded,
                                                                      const serving_options& options);
    ~served_model();
    served_model(const served_model&) = delete;
    served_model& operator=(const served_model&) = delete;

    void serve(exchange request) noexcept;
    [[nodiscard]] const model_shapes& shapes() const noexcept { return model_->shapes(); }
    [[nodiscard]] model& loaded() noexcept { return *model_; }
    [[nodiscard]] served_statistics statistics() const;
    /// Ends what waits in batches, each with its answer. After the last `serve`.
    void stop() noexcept;

  private:
    /// What one thread of a batcher has.
    struct bench {
        std::vector<std::byte> inputs;  ///< of images, a place for each member
        std::vector<tensor> outputs;    ///< of the jobs, if the model has open ones
        std::vector<model_job> jobs;
        std::vector<batch_member*> members;  ///< of the jobs
    };

    served_model(std::unique_ptr<model> loaded, const serving_options& options);
    void start_batcher();
    void serve_here(exchange& request, const request_form& form, std::span<tensor> outputs) noexcept;
    void serve_on_gpu(exchange& request, const request_form& form) noexcept;
    void serve_batch(bench& own, std::span<batch_member> batch) noexcept;
    [[nodiscard]] bool prepare(exchange& request, const request_form& form, std::span<std::byte> room,
                               std::span<const std::byte>& input) noexcept;
    void infer_alone(bench& own) noexcept;
    /// `outputs`: memory for those of the answer, if they are open.
    [[nodiscard]] model_job job_of(exchange& request, std::span<const std::byte> input,
                                   std::span<tensor> outputs) const noexcept;
    void answer(exchange& request, const model_job& done) noexcept;
    void refuse(exchange& request, status why, std::string_view text) noexcept;

    std::unique_ptr<model> model_;
    serving_options options_;
    request_check check_;
    std::size_t open_outputs_;                 ///< how many outputs there are if one of them is open, else 0
    std::unique_ptr<stream_buffers> buffers_;  ///< for images on a GPU
    std::vector<bench> benches_;
    std::optional<batcher> batcher_;
    std::atomic<std::uint64_t> requests_{0};
    std::atomic<std::uint64_t> errors_{0};
};

}  // namespace accel::examples::serving
