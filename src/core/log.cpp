// SPDX-License-Identifier: Apache-2.0
#include "core/log.hpp"

#include "core/clock.hpp"
#include "core/log_limiter.hpp"
#include "core/log_writer.hpp"

namespace accel::core {
namespace {

constinit log_limiter limits;

}  // namespace

void logger::write(log_level level, fmt::string_view text, fmt::format_args values) const noexcept {
    std::uint64_t unsaid = 0;
    if (limited_) {
        const auto allowed = limits.allow(text.data(), peer_, now());
        if (!allowed) return;
        unsaid = *allowed;
    }
    log_writer* const writer = log_writer::get();
    const bool written = writer != nullptr && writer->write(level, text, values, unsaid);
    if (!written && unsaid > 0) limits.keep_back(text.data(), unsaid);
}

}  // namespace accel::core
