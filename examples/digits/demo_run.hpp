// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/digits_row.hpp"
#include "report/temporary_keys.hpp"

#include <accel_transport/status.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace accel::examples::digits {

struct demo_plan {
    std::uint32_t clients = 4;
    std::uint32_t requests = 250;  ///< of each client
    std::string host = "127.0.0.1";
    std::string memory = "host";        ///< of the server: host, cuda:0
    std::chrono::seconds patience{60};  ///< with a run that makes no progress
};

/// What one run came to: its row, and a sentence where it did not go well.
struct demo_result {
    digits_row row;
    std::string failure;
};

/// Hears how a run goes: how many answers there are, and what each form of input came to.
struct demo_watcher {
    std::function<void(input_form form, std::uint64_t answered)> progress;
    std::function<void(const demo_result& result)> finished;
};

/// Serves one scheme in a process of its own and loads it from another (for `local`: both in one), with one
/// result for each form of input.
class demo_run {
  public:
    demo_run(const demo_plan& plan, const report::temporary_keys& keys, std::string scheme)
        : plan_(plan), keys_(keys), scheme_(std::move(scheme)) {}

    [[nodiscard]] std::vector<demo_result> run(const demo_watcher& watcher);

  private:
    [[nodiscard]] demo_result run_client(input_form form, const std::string& uri, int server_process,
                                         const demo_watcher& watcher);
    [[nodiscard]] demo_result nothing(input_form form) const;

    const demo_plan& plan_;
    const report::temporary_keys& keys_;
    std::string scheme_;
};

/// Did every request get an answer, and were at least 97 % of them right.
[[nodiscard]] bool is_good(const demo_result& result, const demo_plan& plan) noexcept;

}  // namespace accel::examples::digits
