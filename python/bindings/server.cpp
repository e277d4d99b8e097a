// SPDX-License-Identifier: Apache-2.0
#include "context.hpp"
#include "errors.hpp"
#include "exchange.hpp"
#include "options.hpp"

#include <accel_transport/server.hpp>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace accel::python {

namespace {

/// What a handler calls. The server's Python object has it too, for Python's garbage collector, and drops the functions
/// when the server has stopped.
struct called {
    called(nb::handle its_function, nb::handle its_elsewhere)
        : function(nb::borrow(its_function)),
          elsewhere(its_elsewhere.is_none() ? nb::object() : nb::borrow(its_elsewhere)) {}
    // With the GIL.
    reference function;
    reference elsewhere;  ///< calls the function on a thread that may wait
};

/// Calls a Python function on a worker's thread.
class python_handler {
  public:
    explicit python_handler(std::shared_ptr<called> its_own)
        : own_(std::move(its_own)), has_elsewhere_(own_->elsewhere) {}
    void operator()(exchange one) const {
        if (ending()) {
            one.fail(status::closed, unseen_code, "the server's interpreter ends");
            return;
        }
        // Parts of a request arrive through this thread, on which nobody may wait for them.
        const bool in_parts = has_elsewhere_ && one.continues();
        auto own = std::make_shared<served>(std::move(one));  // counts it, if it is of `local`, before waiting
        keep_thread_state();
        const locked held;
        const py_exchange request{std::move(own)};
        if (!own_->function) {
            static_cast<void>(request.own->reply(
                {.reason = status::closed, .code = unseen_code, .text = "the server has stopped"}));
            return;
        }
        try {
            const nb::object function = nb::borrow(own_->function.get());
            if (in_parts) {
                nb::borrow(own_->elsewhere.get())(function, request);
                return;
            }
            {
                const nb::object result = function(request);
                reply_with_result(request, result);
            }
            if (request.own->waits())
                nb::module_::import_("accel_transport._errors").attr("log_waiting_answer")(request.own->views());
        } catch (nb::python_error& failed) {
            failed.restore();
            report(request);
        } catch (const std::exception& failed) {
            PyErr_SetString(PyExc_RuntimeError, failed.what());
            report(request);
        }
    }

  private:
    /// Logs the exception that is set, and answers with it. The traceback must not keep the request's views.
    static void report(const py_exchange& request) {
        nb::object failed = nb::steal(handled());
        std::string text = "the handler failed";
        try {
            text = nb::cast<std::string>(
                nb::module_::import_("accel_transport._errors").attr("log_handler_failure")(failed));
        } catch (nb::python_error& again) {
            again.restore();
            PyErr_WriteUnraisable(failed.ptr());
        }
        failed.reset();
        static_cast<void>(request.own->reply({.reason = status::application_error, .text = text}));
    }
    static PyObject* handled() {
        PyObject* type = nullptr;
        PyObject* value = nullptr;
        PyObject* trace = nullptr;
        PyErr_Fetch(&type, &value, &trace);
        PyErr_NormalizeException(&type, &value, &trace);
        if (trace != nullptr) PyException_SetTraceback(value, trace);
        Py_XDECREF(type);
        Py_XDECREF(trace);
        return value;
    }
    std::shared_ptr<called> own_;
    bool has_elsewhere_;
};

class owned_server final : public closable {
  public:
    owned_server(shared_context its_context, server&& its_own) noexcept
        : context_(std::move(its_context)), own(std::move(its_own)), in_loop_(own.event_fd() >= 0) {}
    void close_at_exit() noexcept override {
        const unlocked meanwhile;
        stop();
    }
    // All without the GIL, for which handlers may wait.
    void stop() noexcept {
        // A server with threads may be stopped in a handler, for which another thread's stop waits.
        std::unique_lock held(drives_, std::defer_lock);
        if (in_loop_) held.lock();
        stopped = true;
        own.stop();
    }
    // For an event loop. Another thread may stop the server meanwhile: the interpreter's end does.
    [[nodiscard]] std::size_t poll() noexcept {
        const std::lock_guard held(drives_);
        return stopped ? 0 : own.poll();
    }
    [[nodiscard]] bool arm() noexcept {
        const std::lock_guard held(drives_);
        return stopped || own.arm();
    }
    [[nodiscard]] bool drain(std::chrono::nanoseconds timeout) noexcept {
        const std::lock_guard held(drives_);
        return stopped || own.drain(timeout) == status::ok;
    }

  private:
    shared_context context_;
    std::recursive_mutex drives_;  ///< a task may begin, and drain, within `poll`

  public:
    server own;
    std::atomic<bool> stopped{false};

  private:
    bool in_loop_;
};

using handler_list = std::map<std::string, std::shared_ptr<called>>;  ///< by target

struct py_server {
    py_server(std::shared_ptr<owned_server> its_own, handler_list&& its_handlers) noexcept
        : own(std::move(its_own)), handlers(std::move(its_handlers)) {}
    py_server(const py_server&) = delete;
    py_server& operator=(const py_server&) = delete;
    ~py_server() {
        if (ending()) return;
        const unlocked meanwhile;
        own.reset();
    }
    /// Drops the functions; with them perhaps models, which the library would keep as long as the server.
    void forget_handlers() noexcept {
        for (const auto& [name, each] : std::exchange(handlers, {})) {
            each->function.reset();
            each->elsewhere.reset();
        }
    }
    std::shared_ptr<owned_server> own;
    handler_list handlers;  ///< with the GIL
};

std::shared_ptr<called> called_of(nb::handle function, nb::handle elsewhere) {
    if (PyCallable_Check(function.ptr()) == 0)
        raise(status::invalid_argument, "a handler is a function of one Exchange");
    return std::make_shared<called>(function, elsewhere);
}

void listen(py_server* self, nb::handle context, const std::vector<std::string>& uris, nb::handle handlers,
            nb::handle elsewhere) {
    const shared_context& shared = context_of(context);
    service_table table;
    handler_list all;
    const auto add = [&](const std::string& name, nb::handle function) {
        return python_handler(all[name] = called_of(function, elsewhere));
    };
    if (PyDict_Check(handlers.ptr())) {
        for (const auto [key, function] : nb::borrow<nb::dict>(handlers)) {
            if (key.is_none()) {
                table.unnamed = add({}, function);
                continue;
            }
            auto name = nb::cast<std::string>(nb::str(key));
            handler made = add(name, function);
            table.named.push_back({std::move(name), std::move(made)});
        }
    } else {
        table.unnamed = add({}, handlers);
    }
    auto made = [&] {
        const unlocked meanwhile;
        return server::listen(*shared, uris, table);
    }();
    auto own = std::make_shared<owned_server>(shared, take(std::move(made)));
    close_at_exit(own);
    new (self) py_server(std::move(own), std::move(all));
}

int traverse(PyObject* self, visitproc visit, void* arg) noexcept {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    for (const auto& [name, each] : nb::inst_ptr<py_server>(self)->handlers) {
        Py_VISIT(each->function.get().ptr());
        Py_VISIT(each->elsewhere.get().ptr());
    }
    return 0;
}

int clear(PyObject* self) noexcept {
    if (nb::inst_ready(self)) nb::inst_ptr<py_server>(self)->forget_handlers();
    return 0;
}

PyType_Slot server_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse)},
                              {Py_tp_clear, reinterpret_cast<void*>(&clear)},
                              {0, nullptr}};

nb::dict statistics(const py_server& self) {
    const server_statistics now = [&] {
        const unlocked meanwhile;
        return self.own->own.statistics();
    }();
    nb::dict out;
    out["sessions"] = now.sessions;
    out["sessions_opened"] = now.sessions_opened;
    out["sessions_refused"] = now.sessions_refused;
    out["sessions_lost"] = now.sessions_lost;
    out["requests"] = now.requests;
    out["replies"] = now.replies;
    out["expired"] = now.expired;
    out["cancelled"] = now.cancelled;
    out["overloaded"] = now.overloaded;
    out["not_found"] = now.not_found;
    out["memory_bytes"] = now.memory_bytes;
    return out;
}

void set_health(const py_server& self, const std::string& target, const std::string& state) {
    static constexpr std::array<const char*, 3> names{"unknown", "serving", "not_serving"};
    for (std::size_t i = 0; i < names.size(); ++i)
        if (state == names[i]) {
            auto done = [&] {
                const unlocked meanwhile;
                return self.own->own.set_health(target, static_cast<health_state>(i));
            }();
            return check(done);
        }
    raise(status::invalid_argument, "health is serving, not_serving or unknown");
}

}  // namespace

void add_server(nb::module_& module) {
    nb::class_<py_server>(module, "Server", nb::type_slots(server_slots))
        .def("__init__", &listen, nb::arg("context"), nb::arg("uris"), nb::arg("handlers"),
             nb::arg("elsewhere") = nb::none())
        .def_prop_ro(
            "endpoints", [](const py_server& self) { return self.own->own.endpoints(); },
            "One URI for each that it listens on, with the real port, for clients on this machine.")
        .def_prop_ro("statistics", &statistics, nb::sig("def statistics(self) -> dict[str, int]"),
                     "Counters since the start.")
        .def(
            "_add_target",
            [](py_server& self, const std::string& name, nb::handle function, nb::handle elsewhere) {
                auto own = called_of(function, elsewhere);
                handler made = python_handler(own);
                auto done = [&] {
                    // A stopping server has its lock while its handlers' end waits for the GIL.
                    const unlocked meanwhile;
                    return self.own->own.add_target(name, std::move(made));
                }();
                check(done);
                self.handlers[name] = std::move(own);
            },
            nb::arg("name"), nb::arg("handler").none(), nb::arg("elsewhere").none(),
            nb::sig("def _add_target(self, name: str, handler: object, elsewhere: object) -> None"))
        .def(
            "remove_target",
            [](py_server& self, const std::string& name) {
                auto done = [&] {
                    const unlocked meanwhile;
                    return self.own->own.remove_target(name);
                }();
                check(done);
                self.handlers.erase(name);
            },
            nb::arg("name"), "Removes a target; requests that its handler has are still answered.")
        .def("set_health", &set_health, nb::arg("target"), nb::arg("state"),
             "Sets what `Channel.health` says: serving, not_serving or unknown; an empty target: the whole server.")
        .def(
            "reload_keys",
            [](const py_server& self) {
                auto done = [&] {
                    const unlocked meanwhile;
                    return self.own->own.reload_keys();
                }();
                check(done);
            },
            "Reads the key files again now.")
        .def("_poll",
             [](const py_server& self) {
                 const unlocked meanwhile;
                 return self.own->poll();
             })
        .def("_arm",
             [](const py_server& self) {
                 const unlocked meanwhile;
                 return self.own->arm();
             })
        .def_prop_ro("_fd", [](const py_server& self) { return self.own->own.event_fd(); })
        .def(
            "_drain",
            [](const py_server& self, double timeout) {
                const auto limit = duration_of(timeout);
                const unlocked meanwhile;
                return self.own->drain(limit);
            },
            nb::arg("timeout"))
        .def_prop_ro("_stopped", [](const py_server& self) { return self.own->stopped.load(); })
        .def(
            "stop",
            [](py_server& self) {
                {
                    const unlocked meanwhile;
                    self.own->stop();
                }
                self.forget_handlers();
            },
            "Lets open exchanges be answered within drain_timeout, then closes every session. In a handler it returns "
            "at "
            "once.");
}

}  // namespace accel::python
