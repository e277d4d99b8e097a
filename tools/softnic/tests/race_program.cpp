// SPDX-License-Identifier: Apache-2.0
// A race on purpose: ThreadSanitizer's report of it looks at files, which softnic's functions do under softnic.
#include <thread>

int main() {
    int raced = 0;
    std::thread other([&raced] { raced = 1; });
    raced = 2;
    other.join();
    return 0;
}
