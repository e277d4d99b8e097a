// SPDX-License-Identifier: Apache-2.0
/// Serves models over any number of URIs (docs/serving.md).
#include "report/program.hpp"
#include "serving/model_server/run.hpp"
#include "serving/model_server/settings.hpp"

int main(int argc, char** argv) {
    namespace serving = accel::examples::serving;
    serving::settings chosen;
    if (const auto ended = serving::read_command_line(argc, argv, chosen)) return *ended;
    accel::report::block_server_signals();
    return serving::run_server(chosen);
}
