// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dma/engine.hpp"

struct softnic_dma_ops;

namespace accel::softnic {

/// A plugin given as a table of C functions. The table and `self` live as long as the process.
[[nodiscard]] std::shared_ptr<dma_plugin> make_foreign_plugin(const softnic_dma_ops& ops, void* self);

}  // namespace accel::softnic
