// SPDX-License-Identifier: Apache-2.0
// Stands in front of the C library's getaddrinfo. Answers are files of a folder, which the environment names.
#include "names.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <thread>

#include <dlfcn.h>
#include <netdb.h>
#include <unistd.h>

namespace accel::tests {
namespace {

constexpr const char* variable = "ACCEL_TEST_NAME_FOLDER";

/// Made by the first process that asks, which also removes it. Never destroyed: a thread may ask while the process
/// ends.
const std::string& folder_of_names() {
    static const auto* const made = [] {
        if (const char* const given = std::getenv(variable); given != nullptr) return new std::string{given};
        auto* const folder = new std::string{(std::filesystem::temp_directory_path() / "accel-names-XXXXXX").string()};
        if (::mkdtemp(folder->data()) == nullptr) std::abort();
        ::setenv(variable, folder->c_str(), 1);
        std::atexit([] { std::filesystem::remove_all(std::getenv(variable)); });
        return folder;
    }();
    return *made;
}

std::string file_of(const std::string& name, const char* what = "") {
    return folder_of_names() + "/" + name + what;
}

}  // namespace

void let_name_have(const std::string& name, const std::vector<std::string>& addresses) {
    const std::string file = file_of(name);
    {
        std::ofstream written(file + ".new");
        for (const std::string& each : addresses) written << each << '\n';
    }
    std::filesystem::rename(file + ".new", file);
}

void hold_lookups_of(const std::string& name, bool held) {
    if (held)
        std::ofstream{file_of(name, ".held")};
    else
        std::filesystem::remove(file_of(name, ".held"));
}

/// Each has added a byte.
std::size_t lookups_of(const std::string& name) {
    std::error_code none;
    const auto bytes = std::filesystem::file_size(file_of(name, ".lookups"), none);
    return none ? 0 : bytes;
}

/// What getaddrinfo finds.
static std::vector<std::string> look_up(const std::string& name) {
    std::ofstream(file_of(name, ".lookups"), std::ios::app) << '.';
    std::ifstream from(file_of(name));
    std::vector<std::string> out;
    for (std::string each; std::getline(from, each);) out.push_back(each);
    while (std::filesystem::exists(file_of(name, ".held"))) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    return out;
}

}  // namespace accel::tests

extern "C" __attribute__((visibility("default"))) int getaddrinfo(const char* host, const char* service,
                                                                  const addrinfo* hints, addrinfo** found) {
    using ask = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto real = reinterpret_cast<ask>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
    if (host == nullptr || numeric || !std::string_view{host}.ends_with(".test"))
        return real(host, service, hints, found);
    *found = nullptr;
    addrinfo** end = found;
    for (const std::string& each : accel::tests::look_up(host)) {
        if (const int failed = real(each.c_str(), service, hints, end); failed != 0) return failed;
        while (*end != nullptr) end = &(*end)->ai_next;
    }
    return *found == nullptr ? EAI_NONAME : 0;
}
