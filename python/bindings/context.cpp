// SPDX-License-Identifier: Apache-2.0
#include "context.hpp"

#include "errors.hpp"
#include "options.hpp"

#include <accel_transport/metrics.hpp>

#include <mutex>
#include <string>
#include <vector>

#include <nanobind/stl/string.h>

namespace accel::python {

namespace {

log_level level_of(const std::string& name) {
    static constexpr std::array<const char*, 5> names{"debug", "info", "warning", "error", "off"};
    for (std::size_t i = 0; i < names.size(); ++i)
        if (name == names[i]) return static_cast<log_level>(i);
    raise(status::invalid_argument, "log is one of debug, info, warning, error, off");
}

struct py_context {
    shared_context own;
};

nb::list schemes(const py_context& self) {
    std::vector<scheme_report> found;
    {
        const unlocked meanwhile;
        found = self.own->schemes();
    }
    nb::list out;
    for (const auto& one : found) out.append(nb::make_tuple(one.scheme, one.usable, one.reason));
    return out;
}

std::string metrics_text(const py_context& self) {
    const unlocked meanwhile;
    return prometheus_text(self.own->metrics());
}

lent_memory allocate(const py_context& self, std::size_t bytes, const std::string& memory) {
    const memory_kind kind = memory_of(memory);
    auto made = [&] {
        const unlocked meanwhile;
        return self.own->allocate(bytes, kind);
    }();
    auto owned = std::make_shared<region_owner>(self.own, take(std::move(made)), reference());
    const slice whole = owned->whole.whole();
    return {std::move(owned), whole};
}

lent_memory register_memory(const py_context& self, nb::handle memory) {
    PyObject* const view = PyMemoryView_FromObject(memory.ptr());
    if (view == nullptr) throw nb::python_error();
    const nb::object held = nb::steal(view);
    Py_buffer bytes;
    if (PyObject_GetBuffer(view, &bytes, PyBUF_CONTIG) != 0) throw nb::python_error();
    void* const data = bytes.buf;
    const auto size = static_cast<std::size_t>(bytes.len);
    PyBuffer_Release(&bytes);  // `held` goes on to hold the memory
    auto made = [&] {
        const unlocked meanwhile;
        return self.own->register_memory(data, size);
    }();
    auto owned = std::make_shared<region_owner>(self.own, take(std::move(made)), reference(held));
    const slice whole = owned->whole.whole();
    return {std::move(owned), whole};
}

array array_of(const lent_memory& self) {
    return bytes_array(self.range.bytes(), false, self.of->whole.kind(), pin(self.of));
}

lent_memory part(const lent_memory& self, std::size_t offset, std::size_t length) {
    return {self.of, take(self.range.part(offset, length))};
}

}  // namespace

/// An exchange has the epoch in which it began. Each epoch has the next one, so that an exchange keeps what is added to
/// its own epoch and to later ones.
class local_epoch {
  public:
    local_epoch() = default;
    local_epoch(const local_epoch&) = delete;
    local_epoch& operator=(const local_epoch&) = delete;
    ~local_epoch() {
        // One after another: there may be many.
        while (next && next.use_count() == 1) {
            auto after = std::move(next->next);
            next = std::move(after);
        }
    }
    std::shared_ptr<region_owner> kept;
    std::shared_ptr<local_epoch> next;
};

namespace {

struct local_epochs {
    std::mutex lock;
    std::shared_ptr<local_epoch> now = std::make_shared<local_epoch>();
};
/// Never destroyed: threads may still come at the process's end.
local_epochs& all_local() {
    static auto* const made = new local_epochs;
    return *made;
}

}  // namespace

local_exchange::local_exchange(bool is_local) {
    if (!is_local) return;
    const std::lock_guard held(all_local().lock);
    since_ = all_local().now;
}

void keep_for_local(std::shared_ptr<region_owner> memory) {
    if (!memory) return;
    auto next = std::make_shared<local_epoch>();  // at last the old one, which may end after the lock
    const std::lock_guard held(all_local().lock);
    all_local().now->kept = std::move(memory);
    all_local().now->next = next;
    all_local().now.swap(next);
}

const shared_context& context_of(nb::handle context) {
    return nb::cast<py_context&>(context).own;
}

void add_context(nb::module_& module) {
    nb::class_<lent_memory>(
        module, "Region",
        "Registered memory, or a part of it. A call lends it without a copy: `channel.call(region)`,"
        " `into=region`. It lives as long as calls and views use it.")
        .def_prop_ro(
            "buffer", [](const lent_memory& self) { return view_of(array_of(self)); },
            nb::sig("def buffer(self) -> memoryview"), "The bytes, for memory on the host.")
        .def("tensor", &array_of, "The bytes as a tensor of uint8, for DLPack.")
        .def("part", &part, nb::arg("offset"), nb::arg("length"), "`length` bytes from `offset`.")
        .def("__len__", [](const lent_memory& self) { return self.range.size(); });
    nb::class_<py_context>(
        module, "Context",
        "What channels and servers share: registered memory, transports, metrics. Any thread may use "
        "it. Without one, they share a context of the process.")
        .def(
            "__init__",
            [](py_context* self, const std::string& log, bool metrics) {
                context_options options;
                options.log = level_of(log);
                options.metrics = metrics;
                auto opened = [&] {
                    const unlocked meanwhile;
                    return context::open(options);
                }();
                // Its end waits for the log, and perhaps comes with the last response, on any thread.
                new (self) py_context{std::make_shared<context>(take(std::move(opened)))};
            },
            nb::kw_only(), nb::arg("log") = "warning", nb::arg("metrics") = false,
            "log: the process's level (debug, info, warning, error, off). metrics: count calls, for `metrics()`.")
        .def("schemes", &schemes, nb::sig("def schemes(self) -> list[tuple[str, bool, str]]"),
             "Every scheme, best first: its name, whether it works on this machine, and why.")
        .def("metrics", &metrics_text, "The counts in Prometheus's text format; empty without `metrics=True`.")
        .def("allocate", &allocate, nb::arg("bytes"), nb::arg("memory") = "host",
             "New registered memory, zeroed; memory: host or cuda:N.")
        .def("register", &register_memory, nb::arg("memory"), nb::sig("def register(self, memory: object) -> Region"),
             "Registers writable memory of another object, such as a numpy array, and keeps the object.");
}

}  // namespace accel::python
