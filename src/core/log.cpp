#include "core/log.hpp"

#include "core/fork_guard.hpp"

#include <iostream>
#include <memory>

#include <spdlog/sinks/ostream_sink.h>

namespace accel::core {

namespace {

/// A sink with a lock of its own: that of spdlog's console sinks is one for the process and those it forks.
struct stderr_logger {
    spdlog::logger logger{"accel", std::make_shared<spdlog::sinks::ostream_sink_mt>(std::cerr, true)};

    stderr_logger() {
        logger.set_level(spdlog::level::warn);
        logger.set_pattern("%Y-%m-%d %H:%M:%S.%e [%n] %l: %v");
    }
};

/// Never destroyed: threads of a context that outlives main may still log.
constinit per_process<stderr_logger> loggers;

}  // namespace

spdlog::logger& log() {
    return loggers.get().logger;
}

}  // namespace accel::core
