// SPDX-License-Identifier: Apache-2.0
// Stands in front of the C library's getaddrinfo. Answers are files of a folder, which the environment names.
#include "names.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <dlfcn.h>
#include <netdb.h>
#include <unistd.h>

namespace accel::tests {
namespace {

constexpr const char* variable = "ACCEL_TEST_NAMES";

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

}  // namespace

void let_name_have(const std::string& name, const std::vector<std::string>& addresses) {
    const std::string file = folder_of_names() + "/" + name;
    {
        std::ofstream written(file + ".new");
        for (const std::string& each : addresses) written << each << '\n';
    }
    std::filesystem::rename(file + ".new", file);
}

}  // namespace accel::tests

extern "C" __attribute__((visibility("default"))) int getaddrinfo(const char* host, const char* service,
                                                                  const addrinfo* hints, addrinfo** found) {
    using ask = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto real = reinterpret_cast<ask>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
    if (host == nullptr || numeric || !std::string_view{host}.ends_with(".test"))
        return real(host, service, hints, found);
    std::ifstream addresses(accel::tests::folder_of_names() + "/" + host);
    *found = nullptr;
    addrinfo** end = found;
    for (std::string each; std::getline(addresses, each);) {
        if (const int failed = real(each.c_str(), service, hints, end); failed != 0) return failed;
        while (*end != nullptr) end = &(*end)->ai_next;
    }
    return *found == nullptr ? EAI_NONAME : 0;
}
