// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/infer_head.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace accel::examples::serving::oip {

/// Reads the heads of a client's requests. A client of binary tensors sends the same head again and again, so the last
/// one of these is kept with what it said.
class head_reader {
  public:
    /// As `read_infer_head`. `model` has to outlive it.
    [[nodiscard]] result<infer_request> read(std::string_view head, std::uint64_t binary_bytes,
                                             const model_description& model);

  private:
    static constexpr std::size_t longest_kept = 1024;

    void keep(std::string_view head, std::uint64_t binary_bytes, const model_description& model,
              const infer_request& said);

    std::string head_;
    std::uint64_t binary_bytes_ = 0;
    const model_description* model_ = nullptr;  ///< null: none is kept
    infer_request said_;
};

}  // namespace accel::examples::serving::oip
