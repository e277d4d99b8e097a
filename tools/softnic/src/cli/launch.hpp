// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel::softnic::cli {

/// What `softnic run` puts into the program's environment.
struct launch_options {
    std::optional<std::string> fabric;
    std::optional<std::string> devices;
    std::optional<std::string> mode;
    std::optional<std::string> link;
    std::optional<std::string> trace;
    std::optional<std::string> seed;
    std::vector<std::string> faults;
    std::optional<std::string> cuda_dma;
    std::optional<std::uint64_t> cuda_stay_ms;  ///< with or without work
    bool strict = false;
    bool without_peer_memory = false;
    bool without_dmabuf = false;
    std::vector<std::string> program;
};

/// Where libsoftnic.so is: beside this executable, or in the lib directory of the same installation. Empty if
/// nowhere.
[[nodiscard]] std::string find_library();

/// Sets the environment, LD_PRELOAD included.
void set_environment(const launch_options& options, const std::string& library);

/// Becomes the program. Returns an exit status only when that fails.
int launch(const launch_options& options);

/// Prints what each process of a fabric has to show: messages of a modelled link, and CPU time of the emulation.
int stats(const std::string& fabric);

/// Says whether this machine can run programs under softnic, and what is missing. Exit status 0 if it can.
int doctor();
/// The second half of doctor(), run under softnic: opens the device through the stock libraries.
int doctor_probe();

}  // namespace accel::softnic::cli
