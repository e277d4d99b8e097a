// SPDX-License-Identifier: Apache-2.0
// fault_proxy LISTEN_HOST TARGET_HOST PORT[,PORT...] [KIND DIRECTION OFFSET [ROUTE]]
// Forwards each port of LISTEN_HOST to the same port of TARGET_HOST until standard input ends. KIND is cut,
// end, truncate, stall, delay or corrupt; DIRECTION is to_server or to_client; ROUTE counts the ports from 0.
#include "fault_proxy.hpp"

#include <iostream>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace accel::tests;

fault read_fault(const std::vector<std::string>& words) {
    static const std::map<std::string, fault_kind> kinds{
        {"cut", fault_kind::cut},     {"end", fault_kind::end},     {"truncate", fault_kind::truncate},
        {"stall", fault_kind::stall}, {"delay", fault_kind::delay}, {"corrupt", fault_kind::corrupt}};
    static const std::map<std::string, flow> flows{{"to_server", flow::to_server}, {"to_client", flow::to_client}};
    fault out;
    if (words.size() < 3) return out;
    out.kind = kinds.at(words[0]);
    out.direction = flows.at(words[1]);
    out.offset = std::stoull(words[2]);
    if (words.size() > 3) out.route = std::stoul(words[3]);
    return out;
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.size() < 3) {
        std::cerr << "fault_proxy LISTEN_HOST TARGET_HOST PORT[,PORT...] [KIND DIRECTION OFFSET [ROUTE]]\n";
        return 2;
    }
    try {
        std::vector<std::uint16_t> ports;
        std::istringstream list(arguments[2]);
        for (std::string port; std::getline(list, port, ',');)
            ports.push_back(static_cast<std::uint16_t>(std::stoul(port)));
        fault_proxy proxy(arguments[0], arguments[1], ports);
        proxy.set(read_fault({arguments.begin() + 3, arguments.end()}));
        std::cout << "forwarding; end standard input to stop" << std::endl;
        std::cin.ignore(std::numeric_limits<std::streamsize>::max());
        std::cout << "the fault struck " << proxy.struck() << " times on " << proxy.accepted() << " connections\n";
    } catch (const std::exception& failure) {
        std::cerr << "fault_proxy: " << failure.what() << "\n";
        return 1;
    }
    return 0;
}
