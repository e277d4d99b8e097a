// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace accel::examples::serving {

class model_registry;

/// What a line of the control does: `load NAME[=SPEC]`, `unload NAME`, `list`. Its answer is one line: "loaded NAME",
/// "unloaded NAME", the names, or "error: " and a sentence. Empty for an empty line. May block.
[[nodiscard]] std::string obey(model_registry& models, std::string_view line);

/// Reads lines from a descriptor on a thread of its own and answers on standard output, until the lines end or this is
/// destroyed. Standard input is the simplest way that is safe: who started the server has it, and nobody else.
class control {
  public:
    /// `models` has to outlive it.
    control(model_registry& models, int descriptor);
    control(const control&) = delete;
    control& operator=(const control&) = delete;
    /// Waits for the line under way.
    ~control();

  private:
    void run(model_registry& models, int descriptor) const;

    int stop_ = -1;  ///< an event
    std::thread thread_;
};

}  // namespace accel::examples::serving
