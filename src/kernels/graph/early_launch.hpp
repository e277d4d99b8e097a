// SPDX-License-Identifier: Apache-2.0
#pragma once

struct CUgraph_st;

namespace accel::gpu {

/// Lets the node of `kernel` be launched as soon as all blocks of the one kernel before it have begun, if there is one
/// kernel before it. The node waits for its end itself (`griddepcontrol.wait`), so its launch takes no time then.
/// False: the graph is as it was; CUDA or the current device is too old for it, or other work comes before the node.
[[nodiscard]] bool launch_early(CUgraph_st* graph, const void* kernel);
/// Takes that back.
void launch_late(CUgraph_st* graph, const void* kernel);
/// Whether a graph with such a node launches itself anew on the current device. Tries it, once for each.
[[nodiscard]] bool early_launch_works();

}  // namespace accel::gpu
