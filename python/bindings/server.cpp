// SPDX-License-Identifier: Apache-2.0
#include "context.hpp"
#include "errors.hpp"
#include "exchange.hpp"
#include "options.hpp"

#include <accel_transport/server.hpp>

#include <memory>
#include <string>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace accel::python {

namespace {

/// Calls a Python function on a worker's thread.
class python_handler {
  public:
    python_handler(nb::handle function, nb::handle elsewhere)
        : function_(std::make_shared<reference>(nb::borrow(function))),
          elsewhere_(std::make_shared<reference>(elsewhere.is_none() ? nb::object() : nb::borrow(elsewhere))) {}
    void operator()(exchange one) const {
        if (ending()) {
            one.fail(status::closed, unseen_code, "the server's interpreter ends");
            return;
        }
        // Parts of a request arrive through this thread, on which nobody may wait for them.
        const bool in_parts = *elsewhere_ && one.continues();
        auto own = std::make_shared<served>(std::move(one));  // counts it, if it is of `local`, before waiting
        const locked held;
        const py_exchange request{std::move(own)};
        try {
            if (in_parts) {
                nb::borrow(elsewhere_->get())(nb::borrow(function_->get()), request);
                return;
            }
            {
                const nb::object result = nb::borrow(function_->get())(request);
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
    std::shared_ptr<reference> function_;
    std::shared_ptr<reference> elsewhere_;  ///< calls the function on a thread that may wait
};

class owned_server final : public closable {
  public:
    owned_server(shared_context its_context, server&& its_own) noexcept
        : context_(std::move(its_context)), own(std::move(its_own)) {}
    void close_at_exit() noexcept override {
        const unlocked meanwhile;
        stop();
    }
    /// Without the GIL, for which handlers may wait.
    void stop() noexcept {
        stopped = true;
        own.stop();
    }

  private:
    shared_context context_;

  public:
    server own;
    std::atomic<bool> stopped{false};
};

struct py_server {
    explicit py_server(std::shared_ptr<owned_server> its_own) noexcept : own(std::move(its_own)) {}
    py_server(const py_server&) = delete;
    py_server& operator=(const py_server&) = delete;
    ~py_server() {
        if (ending()) return;
        const unlocked meanwhile;
        own.reset();
    }
    std::shared_ptr<owned_server> own;
};

handler handler_of(nb::handle function, nb::handle elsewhere) {
    if (PyCallable_Check(function.ptr()) == 0)
        raise(status::invalid_argument, "a handler is a function of one Exchange");
    return python_handler(function, elsewhere);
}

void listen(py_server* self, nb::handle context, const std::vector<std::string>& uris, nb::handle handlers,
            nb::handle elsewhere) {
    const shared_context& shared = context_of(context);
    service_table table;
    if (PyDict_Check(handlers.ptr())) {
        for (const auto [name, function] : nb::borrow<nb::dict>(handlers))
            if (name.is_none())
                table.unnamed = handler_of(function, elsewhere);
            else
                table.named.push_back({nb::cast<std::string>(nb::str(name)), handler_of(function, elsewhere)});
    } else {
        table.unnamed = handler_of(handlers, elsewhere);
    }
    auto made = [&] {
        const unlocked meanwhile;
        return server::listen(*shared, uris, table);
    }();
    auto own = std::make_shared<owned_server>(shared, take(std::move(made)));
    close_at_exit(own);
    new (self) py_server(std::move(own));
}

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
    nb::class_<py_server>(module, "Server")
        .def("__init__", &listen, nb::arg("context"), nb::arg("uris"), nb::arg("handlers"),
             nb::arg("elsewhere") = nb::none())
        .def_prop_ro(
            "endpoints", [](const py_server& self) { return self.own->own.endpoints(); },
            "One URI for each that it listens on, with the real port, for clients on this machine.")
        .def_prop_ro("statistics", &statistics, nb::sig("def statistics(self) -> dict[str, int]"),
                     "Counters since the start.")
        .def(
            "_add_target",
            [](const py_server& self, const std::string& name, nb::handle function, nb::handle elsewhere) {
                handler made = handler_of(function, elsewhere);
                auto done = [&] {
                    // A stopping server has its lock while its handlers' end waits for the GIL.
                    const unlocked meanwhile;
                    return self.own->own.add_target(name, std::move(made));
                }();
                check(done);
            },
            nb::arg("name"), nb::arg("handler").none(), nb::arg("elsewhere").none(),
            nb::sig("def _add_target(self, name: str, handler: object, elsewhere: object) -> None"))
        .def(
            "remove_target",
            [](const py_server& self, const std::string& name) {
                auto done = [&] {
                    const unlocked meanwhile;
                    return self.own->own.remove_target(name);
                }();
                check(done);
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
                 return self.own->own.poll();
             })
        .def("_arm", [](const py_server& self) { return self.own->own.arm(); })
        .def_prop_ro("_fd", [](const py_server& self) { return self.own->own.event_fd(); })
        .def(
            "_drain",
            [](const py_server& self, double timeout) {
                const auto limit = duration_of(timeout);
                const unlocked meanwhile;
                return self.own->own.drain(limit) == status::ok;
            },
            nb::arg("timeout"))
        .def_prop_ro("_stopped", [](const py_server& self) { return self.own->stopped.load(); })
        .def(
            "stop",
            [](const py_server& self) {
                const unlocked meanwhile;
                self.own->stop();
            },
            "Lets open exchanges be answered within drain_timeout, then closes every session. In a handler it returns "
            "at "
            "once.");
}

}  // namespace accel::python
