// SPDX-License-Identifier: Apache-2.0
#include "transport/hca.hpp"

#include <algorithm>
#include <stdexcept>

namespace accel::softnic {

hca::hca(settings chosen, std::unique_ptr<fabric> joined)
    : config(std::move(chosen)), net(std::move(joined)), link(config.link), random(config.seed) {
    if (link.on()) net->deepen_loopback();
    for (const auto& plan : config.devices) devices.emplace_back(static_cast<int>(devices.size()), plan);
    std::string problem;
    const auto rules = parse_fault_rules(config.faults, problem);
    if (!rules) throw std::invalid_argument(problem);
    for (const auto& rule : *rules) faults.add(rule);
    if (!config.trace.empty() && !log.start(config.trace))
        throw std::invalid_argument("softnic: cannot write the trace to " + config.trace);
}

void hca::schedule(queue_pair& qp) {
    if (qp.scheduled) return;
    qp.scheduled = true;
    scheduled.push_back(&qp);
}

void hca::unschedule(const queue_pair& qp) {
    std::erase(scheduled, &qp);
}

queue_pair* hca::find_receiver(const packet_header& in) {
    if (in.to.device >= devices.size()) return nullptr;
    device& to = devices[in.to.device];
    const port* at = to.find_port(in.to.port);
    queue_pair* qp = to.find_queue_pair(in.to_qpn);
    return at != nullptr && at->up && qp != nullptr && qp->attributes.port == in.to.port ? qp : nullptr;
}

std::optional<port_address> hca::find_lid(std::uint16_t lid) const {
    for (const auto& one : devices) {
        for (const auto& port : one.ports())
            if (port.link == link_layer::infiniband && port.lid == lid) return port.address;
    }
    return std::nullopt;
}

std::optional<port_address> hca::find_gid(const gid_bytes& gid) const {
    for (const auto& one : devices) {
        for (const auto& port : one.ports()) {
            for (const auto& entry : port.gids)
                if (entry.bytes == gid) return port.address;
        }
    }
    return std::nullopt;
}

}  // namespace accel::softnic
