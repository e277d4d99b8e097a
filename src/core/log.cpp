#include "core/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>

namespace accel::core {

spdlog::logger& log() {
    // Never destroyed: threads of a context that outlives main may still log.
    static auto* logger = [] {
        auto* made = new spdlog::logger("accel", std::make_shared<spdlog::sinks::stderr_sink_mt>());
        made->set_level(spdlog::level::warn);
        made->set_pattern("%Y-%m-%d %H:%M:%S.%e [%n] %l: %v");
        return made;
    }();
    return *logger;
}

}  // namespace accel::core
