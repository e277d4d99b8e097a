// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "errors.hpp"

#include <accel_transport/target.hpp>

#include <charconv>
#include <cmath>
#include <string_view>

namespace accel::python {

namespace {
std::string_view text_of(nb::handle text, const char* what) {
    Py_ssize_t size = 0;
    const char* const data = PyUnicode_Check(text.ptr()) ? PyUnicode_AsUTF8AndSize(text.ptr(), &size) : nullptr;
    if (data == nullptr) {
        PyErr_Clear();
        raise(status::invalid_argument, std::string(what) + " is a str");
    }
    return {data, static_cast<std::size_t>(size)};
}
}  // namespace

memory_kind memory_of(const std::string& name) {
    if (name == "host") return memory_kind::host();
    constexpr std::string_view prefix = "cuda:";
    std::int16_t device = 0;
    if (name.starts_with(prefix)) {
        const char* const end = name.data() + name.size();
        const auto [at, failed] = std::from_chars(name.data() + prefix.size(), end, device);
        if (failed == std::errc() && at == end && device >= 0) return memory_kind::cuda(device);
    }
    raise(status::invalid_argument, "memory is host or cuda:N, not '" + name + "'");
}

std::chrono::nanoseconds duration_of(double seconds) {
    constexpr double most = 366.0 * 24 * 3600;
    if (!(seconds >= 0) || seconds > most)
        raise(status::invalid_argument, "a timeout is a number of seconds, 0 to a year");
    return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

metadata_input::metadata_input(nb::handle dict) {
    if (!dict.is_valid() || dict.is_none()) return;
    nb::dict all;
    if (PyDict_Check(dict.ptr()))
        all = nb::borrow<nb::dict>(dict);
    else if (!nb::hasattr(dict, "keys"))
        raise(status::invalid_argument, "metadata is a dict of str to str or bytes");
    else if (PyDict_Update(all.ptr(), dict.ptr()) != 0)
        throw nb::python_error();
    for (const auto [key, value] : all) {
        held_.push_back(nb::borrow(key));
        held_.push_back(nb::borrow(value));
        std::string_view content;
        if (PyBytes_Check(value.ptr()))
            content = {PyBytes_AsString(value.ptr()), static_cast<std::size_t>(PyBytes_Size(value.ptr()))};
        else
            content = text_of(value, "a value of metadata");
        entries_.push_back({text_of(key, "a key of metadata"), content});
    }
}

nb::dict metadata_dict(std::span<const metadata_entry> list) {
    nb::dict out;
    for (const auto& [key, value] : list) {
        const nb::str name(key.data(), key.size());
        if (key.ends_with("-bin"))
            out[name] = nb::bytes(value.data(), value.size());
        else
            out[name] = nb::str(value.data(), value.size());
    }
    return out;
}

call_options::call_options(std::optional<double> timeout, nb::handle target, nb::handle its_metadata, nb::handle trace,
                           nb::handle baggage, nb::handle its_into)
    : metadata(its_metadata) {
    if (timeout) {
        native.timeout = duration_of(*timeout);
        // The library takes 0 for "none is named"; here it is a deadline that has passed.
        if (native.timeout.count() == 0) native.timeout = std::chrono::nanoseconds(1);
    }
    if (!target.is_none()) {
        const std::string_view name = text_of(target, "target");
        if (!is_target_name(name))
            raise(status::invalid_argument, "a target's name has 1 to 64 printable ASCII characters without blanks");
        native.target = target_of(name);
    }
    native.metadata = metadata.list();
    if (!trace.is_none()) {
        const auto parsed = trace_context::parse(text_of(trace, "trace"));
        if (!parsed) raise(status::invalid_argument, "trace is the value of a header traceparent, 00-…-…-..");
        native.trace = *parsed;
    }
    if (!baggage.is_none()) native.baggage = text_of(baggage, "baggage");
    if (!its_into.is_none()) {
        if (!nb::isinstance<lent_memory>(its_into))
            raise(status::invalid_argument, "into is a Region: register the memory with Context.register");
        const auto& memory = nb::cast<lent_memory&>(its_into);
        native.response_into = memory.range;
        into = memory.of;
    }
}

}  // namespace accel::python
