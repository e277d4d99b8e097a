// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/control.hpp"

#include "serving/model_server/model_registry.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::examples::serving {
namespace {

/// A line that is longer is no command.
constexpr std::size_t longest_line = 4096;

std::string outcome(const result<void>& done, std::string_view what, std::string_view name) {
    return done ? fmt::format("{} {}", what, name) : fmt::format("error: {}", done.error().message);
}

std::string load(model_registry& models, std::string_view text) {
    const auto spec = parse_model_spec(text);
    if (!spec) return fmt::format("error: {}", spec.error().message);
    return outcome(models.load(spec.value()), "loaded", spec.value().name);
}

void say(const std::string& line) {
    if (line.empty()) return;
    fmt::print("{}\n", line);
    std::fflush(stdout);
}

}  // namespace

std::string obey(model_registry& models, std::string_view line) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty()) return {};
    if (line == "list") return fmt::format("models: {}", fmt::join(models.names(), ", "));
    const std::size_t blank = line.find(' ');
    const std::string_view verb = line.substr(0, blank);
    const std::string_view rest = blank == std::string_view::npos ? std::string_view{} : line.substr(blank + 1);
    if (verb == "load" && !rest.empty()) return load(models, rest);
    if (verb == "unload" && !rest.empty()) return outcome(models.unload(rest), "unloaded", rest);
    return fmt::format("error: '{}' is not a valid command: write 'load NAME[=SPEC]', 'unload NAME' or 'list'", line);
}

control::control(model_registry& models, int descriptor) : stop_(::eventfd(0, EFD_CLOEXEC)) {
    thread_ = std::thread([this, &models, descriptor] { run(models, descriptor); });
}

control::~control() {
    const std::uint64_t one = 1;
    (void)!::write(stop_, &one, sizeof one);
    thread_.join();
    ::close(stop_);
}

void control::run(model_registry& models, int descriptor) const {
    std::string unread;
    while (true) {
        std::array<pollfd, 2> ready{{{descriptor, POLLIN, 0}, {stop_, POLLIN, 0}}};
        if (::poll(ready.data(), ready.size(), -1) < 0) continue;
        if (ready[1].revents != 0) return;
        std::array<char, 512> bytes;
        const ssize_t length = ::read(descriptor, bytes.data(), bytes.size());
        if (length <= 0) return;
        unread.append(bytes.data(), static_cast<std::size_t>(length));
        std::size_t end = unread.find('\n');
        for (; end <= longest_line; end = unread.find('\n')) {
            say(obey(models, std::string_view{unread}.substr(0, end)));
            unread.erase(0, end + 1);
        }
        if (std::min(end, unread.size()) > longest_line)
            return say("error: a line is longer than 4096 bytes, so the control ends here");
    }
}

}  // namespace accel::examples::serving
