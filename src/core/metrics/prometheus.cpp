// SPDX-License-Identifier: Apache-2.0
#include <accel_transport/metrics.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

namespace accel {
namespace {

std::string_view type_name(metric_kind kind) {
    switch (kind) {
        case metric_kind::counter:
            return "counter";
        case metric_kind::gauge:
            return "gauge";
        case metric_kind::histogram:
            break;
    }
    return "histogram";
}

/// Appends a text with backslashes and ends of lines escaped; quotes too in the value of a label.
void append_escaped(std::string& out, std::string_view text, bool quotes) {
    for (const char c : text)
        if (c == '\\' || (quotes && c == '"'))
            (out += '\\') += c;
        else if (c == '\n')
            out += "\\n";
        else
            out += c;
}

void append_number(std::string& out, double value) {
    if (std::isnan(value))
        out += "NaN";
    else if (std::isinf(value))
        out += value > 0 ? "+Inf" : "-Inf";
    else
        fmt::format_to(std::back_inserter(out), "{}", value);
}

class text_writer {
  public:
    void family(const metric_family& of) {
        fmt::format_to(std::back_inserter(out_), "# HELP {} ", of.name);
        append_escaped(out_, of.help, false);
        fmt::format_to(std::back_inserter(out_), "\n# TYPE {} {}\n", of.name, type_name(of.kind));
        for (const metric& each : of.series)
            of.kind == metric_kind::histogram ? histogram(of.name, each) : line(of.name, "", each, nullptr, each.value);
    }
    std::string take() { return std::move(out_); }

  private:
    void histogram(std::string_view name, const metric& from) {
        for (const metric::bucket& each : from.buckets)
            line(name, "_bucket", from, &each.upper, static_cast<double>(each.count));
        line(name, "_bucket", from, &above_all, static_cast<double>(from.count));
        line(name, "_sum", from, nullptr, from.value);
        line(name, "_count", from, nullptr, static_cast<double>(from.count));
    }
    void line(std::string_view name, std::string_view suffix, const metric& from, const double* upper, double value) {
        (out_ += name) += suffix;
        char before = '{';
        for (const auto& [label, content] : from.labels) {
            ((out_ += std::exchange(before, ',')) += label) += "=\"";
            append_escaped(out_, content, true);
            out_ += '"';
        }
        if (upper != nullptr) {
            (out_ += std::exchange(before, ',')) += "le=\"";
            append_number(out_, *upper);
            out_ += '"';
        }
        out_ += before == '{' ? " " : "} ";
        append_number(out_, value);
        out_ += '\n';
    }

    static constexpr double above_all = HUGE_VAL;
    std::string out_;
};

bool has(const metric& one, std::pair<std::string_view, std::string_view> label) {
    return std::ranges::any_of(
        one.labels, [&](const metric_label& each) { return each.first == label.first && each.second == label.second; });
}

}  // namespace

double metrics_snapshot::sum(std::string_view name,
                             std::initializer_list<std::pair<std::string_view, std::string_view>> labels) const {
    double all = 0;
    for (const metric_family& family : families) {
        if (family.name != name) continue;
        for (const metric& each : family.series) {
            if (!std::ranges::all_of(labels, [&](const auto& label) { return has(each, label); })) continue;
            all += family.kind == metric_kind::histogram ? static_cast<double>(each.count) : each.value;
        }
    }
    return all;
}

std::string prometheus_text(const metrics_snapshot& from) {
    text_writer out;
    for (const metric_family& each : from.families) out.family(each);
    return out.take();
}

}  // namespace accel
