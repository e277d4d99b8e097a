// SPDX-License-Identifier: Apache-2.0
// Stands in front of the C library's getaddrinfo, for this program and the libraries that it loads.
#include "faults/silent_names.hpp"

#include "loopback.hpp"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string_view>

#include <dlfcn.h>
#include <netdb.h>

namespace accel::faults {
namespace {

struct known_name {
    name_answer answer = name_answer::unknown;
    std::size_t first = 0;
};
/// Never destroyed: a thread may wait while the process ends.
struct name_server {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, known_name, std::less<>> names;
    std::size_t waiting = 0;
    std::size_t most = 0;
    std::size_t spoken = 0;
};
name_server& the_server() {
    static auto* const made = new name_server;
    return *made;
}

name_answer ask_server(std::string_view name) {
    name_server& from = the_server();
    std::unique_lock lock(from.mutex);
    const auto found = from.names.find(name);
    if (found == from.names.end()) return name_answer::unknown;
    if (found->second.first > 0) {
        --found->second.first;
        return name_answer::try_again;
    }
    if (found->second.answer != name_answer::silence) return found->second.answer;
    from.most = std::max(from.most, ++from.waiting);
    from.changed.wait(lock, [&from, before = from.spoken] { return from.spoken != before; });
    --from.waiting;
    from.changed.notify_all();
    return name_answer::try_again;
}

}  // namespace

void answer_name(const std::string& name, name_answer answer, std::size_t first) {
    const std::lock_guard lock(the_server().mutex);
    the_server().names[name] = {answer, first};
}
void speak() {
    name_server& of = the_server();
    std::unique_lock lock(of.mutex);
    of.names.clear();
    ++of.spoken;
    of.changed.notify_all();
    of.changed.wait(lock, [&of] { return of.waiting == 0; });
    of.most = 0;
}
std::size_t waiting_for_names() {
    const std::lock_guard lock(the_server().mutex);
    return the_server().waiting;
}
std::size_t most_waiting_for_names() {
    const std::lock_guard lock(the_server().mutex);
    return the_server().most;
}

}  // namespace accel::faults

extern "C" __attribute__((visibility("default"))) int getaddrinfo(const char* host, const char* service,
                                                                  const addrinfo* hints, addrinfo** found) {
    using namespace accel::faults;
    using ask = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto real = reinterpret_cast<ask>(::dlsym(RTLD_NEXT, "getaddrinfo"));
    const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
    if (host == nullptr || numeric || !std::string_view{host}.ends_with(".test"))
        return real(host, service, hints, found);
    switch (ask_server(host)) {
        case name_answer::loopback:
            return real(accel::tests::own_loopback().c_str(), service, hints, found);
        case name_answer::both: {
            const int failed = real("::1", service, hints, found);
            return failed != 0 ? failed
                               : real(accel::tests::own_loopback().c_str(), service, hints, &(*found)->ai_next);
        }
        case name_answer::silence:
        case name_answer::try_again:
            return EAI_AGAIN;
        case name_answer::unknown:
            break;
    }
    return EAI_NONAME;
}
