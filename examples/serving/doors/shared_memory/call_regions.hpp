// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/oip/output_choice.hpp"
#include "serving/doors/oip/region_part.hpp"
#include "serving/doors/shared_memory/region_table.hpp"

#include <accel_transport/memory.hpp>
#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace accel::examples::serving::shared_memory {

/// True: channels of this scheme read lent memory in this process, or by a device that has pinned it. System calls of
/// the others would fail where pages are missing, and a channel with them.
[[nodiscard]] bool reads_in_place(std::string_view scheme) noexcept;

/// The regions of one call: where its inputs come from, and its outputs go. Keeps them alive until `clear`.
class call_regions {
  public:
    /// Looks up what a request names. `table`: null where no client may. `invalid_argument`, `unsupported`: as
    /// `region_table::find`, or an output's place is too short for it.
    [[nodiscard]] static result<call_regions> open(const std::shared_ptr<region_table>& table,
                                                   std::span<const oip::region_input> inputs,
                                                   std::span<const oip::output_choice> outputs,
                                                   const oip::model_description& model);

    /// Copies the inputs to their places in a request's payload: `placed` are all of its tensors.
    [[nodiscard]] result<void> copy_in(std::span<const tensor> placed, std::span<std::byte> payload);
    /// The whole payload as slices, for a channel of this scheme. Empty: it has to be copied, because the scheme reads
    /// with system calls, or a part of the payload does not lie in regions that are lent.
    [[nodiscard]] std::vector<slice> lend(std::span<const tensor> placed, std::string_view scheme);
    /// GPU memory that takes the response as it is, without a copy: for a model's only output, of a fixed shape. Else
    /// empty.
    [[nodiscard]] slice place_of_response(const oip::model_description& model);
    /// Copies outputs to their places; none where the response went to `place_of_response`. `outputs`: all of the
    /// model's, within `payload`.
    [[nodiscard]] result<void> copy_out(const oip::model_description& model, std::span<const tensor> outputs,
                                        std::span<const std::byte> payload);

    [[nodiscard]] bool has_inputs() const noexcept { return !inputs_.empty(); }
    [[nodiscard]] bool has_outputs() const noexcept { return !outputs_.empty(); }
    /// The server writes to a client's memory: the call cannot be taken back early.
    [[nodiscard]] bool answers_in_place() const noexcept { return in_place_; }
    /// `invalid_argument`: memory was taken away while the call read it.
    [[nodiscard]] result<void> check_kept() const;
    void clear();

  private:
    std::shared_ptr<region_table> table_;
    std::vector<use> inputs_;
    std::vector<use> outputs_;
    bool lent_ = false;
    bool in_place_ = false;
};

}  // namespace accel::examples::serving::shared_memory
