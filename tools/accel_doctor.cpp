// SPDX-License-Identifier: Apache-2.0
#include "doctor/findings.hpp"
#include "doctor/output.hpp"
#include "report/program.hpp"

#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

int main(int argc, char** argv) {
    constexpr const char* name = "accel_doctor";
    std::string json;
    CLI::App app{"Reports what this machine can do, scheme by scheme, and what is missing."};
    app.footer("Examples:\n  accel_doctor\n  accel_doctor --json\n  accel_doctor --json report.json");
    app.set_version_flag("--version", "accel_doctor " + accel::report::version_text());
    CLI::Option& wants_json = *app.add_option("--json", json, "Write JSON to FILE, or to standard output without one")
                                   ->type_name("[FILE]")
                                   ->expected(0, 1);
    CLI11_PARSE(app, argc, argv);

    const auto found = accel::doctor::examine();
    if (!found) return accel::report::complain(name, found.error());
    if (wants_json.count() == 0) {
        accel::doctor::print(found.value());
        return accel::report::written(stdout) ? 0 : 1;
    }
    return accel::report::write_json(json.empty() ? "-" : json, accel::doctor::json_of(found.value())) ? 0 : 1;
}
