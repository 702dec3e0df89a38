#include "client/python/async_client.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "client/python/arguments.h"
#include "client/python/bytes.h"
#include "client/python/errors.h"
#include "client/python/interrupts.h"
#include "client/python/no_new.h"
#include "client/python/released.h"
#include "rkv/async_client.h"

namespace py = pybind11;

namespace rkv::python {

namespace {

using Level = std::optional<std::string>;

// An exception of a callback, such as KeyboardInterrupt of a signal: poll() raises it.
using Thrown = std::optional<py::error_already_set>;

// An operation from its submission to its end: it holds the bytes, and calls done(result, error).
// Created and destroyed with the interpreter's lock (PY-2).
struct Operation {
  Operation(py::handle of_key, py::object told, Thrown& of_client)
      : key(of_key), done(std::move(told)), thrown(of_client) {}
  Held key;
  std::optional<Held> value;  // of a put; the room of a get_into
  std::stop_source stop;
  py::object done;
  Thrown& thrown;

  // `make` returns the result. What it raises, such as MemoryError, is the operation's error.
  template <class Make>
  void end(Make make) {
    py::object result = py::none();
    py::object error = py::none();
    try {
      result = make();
    } catch (const py::error_already_set& raised) {
      error = raised.value();
    } catch (const std::exception&) {
      error = py::reinterpret_borrow<py::object>(PyExc_MemoryError);
    }
    tell(result, error);
  }
  // The future of an operation that was withdrawn has ended before: it was cancelled.
  void fail(const Error& error) {
    if (error.code == Code::kCancelled) return;
    end([&]() -> py::object { raise(error, AsyncClient::last_refusal()); });
  }
  // A signal's handler may throw before `done` has begun: so it is called once more.
  void tell(const py::object& result, const py::object& error) {
    for (int tries = 0; tries < 2; ++tries) {
      try {
        done(result, error);
        return;
      } catch (py::error_already_set& caught) {
        if (thrown) {
          caught.discard_as_unraisable("a callback of rkv.AsyncClient");
        } else {
          thrown.emplace(std::move(caught));
        }
      }
    }
  }
};

// Withdraws an operation.
class Stop {
 public:
  explicit Stop(std::stop_source source) : source_(std::move(source)) {}
  void request() { source_.request_stop(); }

 private:
  std::stop_source source_;
};

class AsyncCore {
 public:
  explicit AsyncCore(const py::kwargs& given) : client_(connect(given)) {}
  AsyncCore(const AsyncCore&) = delete;
  AsyncCore& operator=(const AsyncCore&) = delete;

  Stop get(py::handle key, py::object done, const Seconds& timeout) {
    AsyncClient& client = open();
    auto own = made(key, std::move(done));
    auto call = client.get(own->key.text(), {.timeout = timeout_of(timeout)});
    return begin<ValueView>(
        std::move(own), std::move(call), [](Operation& ended, const Result<ValueView>& got) {
          end_read(ended, got, [](const ValueView& value) { return bytes_of(value.value); });
        });
  }
  Stop get_into(py::handle key, py::handle buffer, py::object done, const Seconds& timeout) {
    AsyncClient& client = open();
    auto own = made(key, std::move(done));
    own->value.emplace(buffer, Held::For::kWriting);
    auto call =
        client.get_into(own->key.text(), own->value->room(), {.timeout = timeout_of(timeout)});
    return begin<ValueSize>(
        std::move(own), std::move(call), [](Operation& ended, const Result<ValueSize>& got) {
          if (got || got.error().code != Code::kTooLarge)
            return end_read(ended, got, [](const ValueSize& size) { return py::int_(size.bytes); });
          ended.end([&]() -> py::object {
            raise(exception_of_into(got.error(), AsyncClient::needed_bytes()));
          });
        });
  }
  Stop touch(py::handle key, py::object done, const Seconds& ttl, const OptionalVersion& if_version,
             const Level& durability, const Seconds& timeout) {
    AsyncClient& client = open();
    auto own = made(key, std::move(done));
    PutOptions options = put_options(ttl, false, if_version, durability, timeout);
    options.keep_value = true;
    auto call = client.put_with(own->key.text(), {}, options);
    return begin<std::uint64_t>(std::move(own), std::move(call),
                                [](Operation& ended, const Result<std::uint64_t>& version) {
                                  const bool absent =
                                      !version && version.error().code == Code::kNotFound;
                                  if (!version && !absent) return ended.fail(version.error());
                                  ended.end([&]() -> py::object {
                                    return absent ? py::object(py::none()) : py::int_(*version);
                                  });
                                });
  }
  Stop put(py::handle key, py::handle value, py::object done, const Seconds& ttl, bool if_absent,
           const OptionalVersion& if_version, const Level& durability, const Seconds& timeout) {
    AsyncClient& client = open();
    auto own = made(key, std::move(done));
    own->value.emplace(value);
    auto call = client.put_with(own->key.text(), own->value->text(),
                                put_options(ttl, if_absent, if_version, durability, timeout));
    return begin<std::uint64_t>(std::move(own), std::move(call),
                                [](Operation& ended, const Result<std::uint64_t>& version) {
                                  if (!version) return ended.fail(version.error());
                                  ended.end([&] { return py::int_(*version); });
                                });
  }
  Stop remove(py::handle key, py::object done, const Level& durability, const Seconds& timeout) {
    AsyncClient& client = open();
    auto own = made(key, std::move(done));
    auto call = client.remove(own->key.text(), {durability_of(durability), timeout_of(timeout)});
    return begin<std::uint64_t>(std::move(own), std::move(call),
                                [](Operation& ended, const Result<std::uint64_t>& version) {
                                  const bool absent =
                                      !version && version.error().code == Code::kNotFound;
                                  if (!version && !absent) return ended.fail(version.error());
                                  ended.end([&] { return py::bool_(version.has_value()); });
                                });
  }
  Stop incr(py::handle key, const Number& by, py::object done, const Level& durability,
            const Seconds& timeout) {
    AsyncClient& client = open();
    auto own = made(key, std::move(done));
    auto call =
        client.incr(own->key.text(), by.number, {durability_of(durability), timeout_of(timeout)});
    return begin<Counter>(std::move(own), std::move(call),
                          [](Operation& ended, const Result<Counter>& counter) {
                            if (!counter) return ended.fail(counter.error());
                            ended.end([&] { return py::int_(counter->number); });
                          });
  }

  RegisteredBuffer allocate(std::size_t bytes) {
    AsyncClient& client = open();
    auto allocated = [&] {
      const Released released;
      return client.allocate_buffer(bytes);
    }();
    return value_or_raise(std::move(allocated));
  }

  // Raises what a callback has thrown.
  std::size_t poll() {
    const std::size_t ended = open().poll();
    if (thrown_) throw py::error_already_set(*std::exchange(thrown_, std::nullopt));
    return ended;
  }
  bool arm() { return open().arm(); }
  int descriptor() { return open().descriptor(); }
  std::size_t in_flight() { return client_ ? client_->in_flight() : 0; }
  // Ends what is in flight. False: in a callback of the client.
  bool close() {
    if (!client_) return true;
    const Released released;
    if (!client_->close()) return false;
    client_.reset();
    return true;
  }
  ~AsyncCore() { close(); }
  std::string describe() { return open().describe(); }

 private:
  static AsyncClient connect(const py::kwargs& given) {
    using Made = std::pair<Result<AsyncClient>, std::string>;
    auto made = apart([options = options_of(given)] {
      std::string refusal;
      auto client = AsyncClient::connect(options.client, &refusal);
      return Made(std::move(client), std::move(refusal));
    });
    if (!made) throw py::error_already_set();
    if (!made->first) raise(made->first.error(), made->second);
    return std::move(*made->first);
  }
  AsyncClient& open() {
    if (!client_) throw py::value_error("the client is closed");
    return *client_;
  }
  std::unique_ptr<Operation> made(py::handle key, py::object done) {
    return std::make_unique<Operation>(key, std::move(done), thrown_);
  }
  template <class T, class Value>
  static void end_read(Operation& ended, const Result<T>& got, Value value) {
    if (got) {
      ended.end([&] { return value(*got); });
    } else if (got.error().code == Code::kNotFound) {
      ended.end([] { return py::none(); });
    } else {
      ended.fail(got.error());
    }
  }
  // R: what `end` gets a result of, T or, of a get, a ValueView.
  template <class R, class T, class End>
  Stop begin(std::unique_ptr<Operation> own, Call<T> call, End end) {
    Stop stop(own->stop);
    Operation* const operation = own.get();
    const bool begun = std::move(call)
                           .until(operation->stop.get_token())
                           .then([operation, end](const Result<R>& result) {
                             const py::gil_scoped_acquire held;
                             const std::unique_ptr<Operation> ended(operation);
                             end(*ended, result);
                           });
    if (!begun) throw py::value_error("the client is closed");
    static_cast<void>(own.release());
    return stop;
  }

  Thrown thrown_;  // outlives the client
  std::optional<AsyncClient> client_;
};

}  // namespace

void define_async_client(py::module_& module) {
  using py::arg;
  const auto kw = py::kw_only();
  const py::object none = py::none();
  py::class_<Stop> stop(module, "Stop");
  forbid_new(stop);
  stop.def("request", &Stop::request);
  py::class_<AsyncCore> client(module, "AsyncCore");
  forbid_new(client);
  module.def("connect_async",
             [](const py::kwargs& given) { return std::make_unique<AsyncCore>(given); });
  client.def("get", &AsyncCore::get, arg("key"), arg("done"), kw, arg("timeout") = none)
      .def("get_into", &AsyncCore::get_into, arg("key"), arg("buffer"), arg("done"), kw,
           arg("timeout") = none)
      .def("allocate", &AsyncCore::allocate, arg("bytes"))
      .def("put", &AsyncCore::put, arg("key"), arg("value"), arg("done"), kw, arg("ttl") = none,
           arg("if_absent") = false, arg("if_version") = none, arg("durability") = none,
           arg("timeout") = none)
      .def("touch", &AsyncCore::touch, arg("key"), arg("done"), arg("ttl") = none, kw,
           arg("if_version") = none, arg("durability") = none, arg("timeout") = none)
      .def("delete", &AsyncCore::remove, arg("key"), arg("done"), kw, arg("durability") = none,
           arg("timeout") = none)
      .def("incr", &AsyncCore::incr, arg("key"), arg("by"), arg("done"), kw,
           arg("durability") = none, arg("timeout") = none)
      .def("poll", &AsyncCore::poll)
      .def("arm", &AsyncCore::arm)
      .def("descriptor", &AsyncCore::descriptor)
      .def("in_flight", &AsyncCore::in_flight)
      .def("close", &AsyncCore::close)
      .def_property_readonly("transport", &AsyncCore::describe);
}

}  // namespace rkv::python
