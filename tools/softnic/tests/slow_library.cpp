// SPDX-License-Identifier: Apache-2.0
// A library that takes its time to be loaded, and opens and closes a file meanwhile.
#include <chrono>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void load_slowly() {
    const int file = ::open("/dev/null", O_RDONLY);
    std::this_thread::sleep_for(std::chrono::milliseconds{300});
    ::close(file);
}
