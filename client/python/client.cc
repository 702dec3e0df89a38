#include "client/python/client.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/c/handle.h"
#include "client/python/arguments.h"
#include "client/python/bytes.h"
#include "client/python/errors.h"
#include "client/python/no_new.h"
#include "client/python/released.h"
#include "rkv/shared_client.h"

namespace py = pybind11;

namespace rkv::python {

namespace {

using Seconds = std::optional<double>;
using Level = std::optional<std::string>;

class PyClient {
 public:
  explicit PyClient(const py::kwargs& given) : handle_(connect(given)) {}

  void close() {
    const Released released;
    handle_.close();
  }

  py::object get(py::handle key, const py::object& otherwise, const Seconds& timeout) {
    const auto found = find(key, timeout);
    return found ? bytes_of(found->value) : otherwise;
  }
  py::object get_with_version(py::handle key, const Seconds& timeout) {
    const auto found = find(key, timeout);
    if (!found) return py::none();
    return py::make_tuple(bytes_of(found->value), found->version);
  }
  std::optional<std::size_t> get_into(py::handle key, py::handle buffer, const Seconds& timeout) {
    const Held name(key);
    const Held room(buffer, Held::For::kWriting);
    auto got = call([&](SharedClient& client) {
      return client.get_into(name.text(), room.room(), GetOptions{.timeout = timeout_of(timeout)});
    });
    if (!got && got.error().code == Code::kNotFound) return std::nullopt;
    return value_or_raise(std::move(got)).bytes;
  }
  RegisteredBuffer allocate(std::size_t bytes) {
    return value_or_raise(
        call([&](SharedClient& client) { return client.allocate_buffer(bytes); }));
  }
  std::uint64_t put(py::handle key, py::handle value, const Seconds& ttl, bool if_absent,
                    const std::optional<std::uint64_t>& if_version, const Level& durability,
                    const Seconds& timeout) {
    const Held name(key);
    const Held text(value);
    const PutOptions options = put_options(ttl, if_absent, if_version, durability, timeout);
    return value_or_raise(call(
        [&](SharedClient& client) { return client.put_with(name.text(), text.text(), options); }));
  }
  // Whether there was such a key.
  bool remove(py::handle key, const std::optional<std::uint64_t>& if_version,
              const Level& durability, const Seconds& timeout) {
    const Held name(key);
    const WriteOptions options{durability_of(durability), timeout_of(timeout)};
    auto removed = call([&](SharedClient& client) {
      return if_version ? client.remove_if_version(name.text(), *if_version, options)
                        : client.remove(name.text(), options);
    });
    if (!removed && removed.error().code == Code::kNotFound) return false;
    value_or_raise(std::move(removed));
    return true;
  }
  std::int64_t incr(py::handle key, std::int64_t by, const Level& durability,
                    const Seconds& timeout) {
    const Held name(key);
    const WriteOptions options{durability_of(durability), timeout_of(timeout)};
    return value_or_raise(
               call([&](SharedClient& client) { return client.incr(name.text(), by, options); }))
        .number;
  }
  std::optional<std::int64_t> get_counter(py::handle key, const Seconds& timeout) {
    const Held name(key);
    auto got = call(
        [&](SharedClient& client) { return client.get_counter(name.text(), timeout_of(timeout)); });
    if (!got && got.error().code == Code::kNotFound) return std::nullopt;
    return value_or_raise(std::move(got)).number;
  }

  // ---- many keys

  std::vector<py::object> multi_get(const py::iterable& keys, const Seconds& timeout) {
    const std::vector<Held> held = hold_all(keys);
    const std::vector<std::string_view> names = texts_of(held);
    const auto all = call([&](SharedClient& client) {
      return client.multi_get(names, GetOptions{.timeout = timeout_of(timeout)});
    });
    std::vector<py::object> values;
    values.reserve(all.size());
    for (const Result<Value>& got : all) {
      if (got) {
        values.push_back(bytes_of(got->value));
      } else if (got.error().code == Code::kNotFound) {
        values.push_back(py::none());
      } else {
        raise(got.error());
      }
    }
    return values;
  }
  // Each value goes to the buffer of the same place. Returns the lengths; None: no such key.
  std::vector<std::optional<std::size_t>> multi_get_into(const py::iterable& keys,
                                                         const py::iterable& buffers,
                                                         const Seconds& timeout) {
    const std::vector<Held> held = hold_all(keys);
    const std::vector<Held> held_rooms = hold_all(buffers, Held::For::kWriting);
    if (held.size() != held_rooms.size())
      throw py::value_error("there must be as many buffers as keys");
    const std::vector<std::string_view> names = texts_of(held);
    std::vector<std::span<std::byte>> rooms;
    rooms.reserve(held_rooms.size());
    for (const Held& each : held_rooms)
      rooms.push_back(each.room());
    const auto all = call([&](SharedClient& client) {
      return client.multi_get_buffers(names, rooms, GetOptions{.timeout = timeout_of(timeout)});
    });
    std::vector<std::optional<std::size_t>> sizes(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i]) {
        sizes[i] = all[i]->bytes;
      } else if (all[i].error().code != Code::kNotFound) {
        raise(all[i].error());
      }
    }
    return sizes;
  }
  std::vector<std::uint64_t> multi_put(const py::object& items, const Seconds& ttl,
                                       const Level& durability, const Seconds& timeout) {
    const py::iterable pairs =
        py::isinstance<py::dict>(items) ? py::iterable(items.attr("items")()) : py::iterable(items);
    std::vector<std::pair<Held, Held>> held;
    for (const py::handle pair : pairs) {
      const auto both = py::cast<py::sequence>(pair);
      if (both.size() != 2) throw py::value_error("an item is a pair of key and value");
      held.emplace_back(Held(py::object(both[0])), Held(py::object(both[1])));
    }
    std::vector<KeyValue> all;
    all.reserve(held.size());
    const std::chrono::milliseconds lives = timeout_of(ttl);
    for (const auto& [key, value] : held)
      all.push_back({.key = key.text(), .value = value.text(), .ttl = lives});
    const WriteOptions options{durability_of(durability), timeout_of(timeout)};
    const auto put = call([&](SharedClient& client) { return client.multi_put(all, options); });
    std::vector<std::uint64_t> versions;
    versions.reserve(put.size());
    std::optional<Error> failed;
    bool any_written = false;
    for (const auto& version : put) {
      if (version) {
        versions.push_back(*version);
        any_written = true;
        continue;
      }
      any_written = any_written || version.error().write == WriteOutcome::kMayHaveHappened;
      if (!failed) failed = version.error();
    }
    if (failed) {  // of the call as a whole
      if (any_written) failed->write = WriteOutcome::kMayHaveHappened;
      raise(*failed);
    }
    return versions;
  }

  // ---- the server

  // A page: pairs of key and value, and the token of the next one, empty at the end.
  py::tuple scan_page(py::handle prefix, py::handle start, py::handle end, bool reverse,
                      bool keys_only, std::uint32_t limit, py::handle token,
                      const Seconds& timeout) {
    const Held of_prefix(prefix);
    const Held of_start(start);
    const Held of_end(end);
    const Held of_token(token);
    const auto page = value_or_raise(call([&](SharedClient& client) {
      return client.scan({.prefix = of_prefix.text(),
                          .start = of_start.text(),
                          .end = of_end.text(),
                          .reverse = reverse,
                          .keys_only = keys_only,
                          .limit = limit,
                          .token = of_token.text(),
                          .timeout = timeout_of(timeout)});
    }));
    py::list entries;
    for (const ScanEntry& entry : page.entries())
      entries.append(py::make_tuple(bytes_of(entry.key), bytes_of(entry.value)));
    return py::make_tuple(entries, bytes_of(page.token()));
  }
  void ping(const Seconds& timeout) {
    const auto pinged =
        call([&](SharedClient& client) { return client.ping(timeout_of(timeout)); });
    if (!pinged) raise(pinged.error());
  }
  std::uint64_t flush(const Seconds& timeout) {
    return value_or_raise(
        call([&](SharedClient& client) { return client.flush(timeout_of(timeout)); }));
  }
  std::string server_stats(const Seconds& timeout) {
    return value_or_raise(
        call([&](SharedClient& client) { return client.server_stats(timeout_of(timeout)); }));
  }
  std::uint64_t one_sided_gets() {
    return call([](SharedClient& client) { return client.stats().one_sided_gets; });
  }
  std::string describe() {
    return call([](SharedClient& client) { return client.describe(); });
  }

 private:
  std::optional<Value> find(py::handle key, const Seconds& timeout) {
    const Held name(key);
    auto got = call([&](SharedClient& client) {
      return client.get(name.text(), GetOptions{.timeout = timeout_of(timeout)});
    });
    if (!got && got.error().code == Code::kNotFound) return std::nullopt;
    return value_or_raise(std::move(got));
  }
  static SharedClient connect(const py::kwargs& given) {
    const rkv_options options = options_of(given);
    std::string refusal;
    auto made = [&] {
      const Released released;
      return SharedClient::connect(options.client, options.connections, &refusal);
    }();
    if (!made) raise(made.error(), refusal);
    return std::move(*made);
  }
  // PY-1. `body` must not touch the interpreter, apart from throwing ValueError before it blocks.
  template <class Body>
  auto call(Body body) -> decltype(body(std::declval<SharedClient&>())) {
    const Released released;
    const c::Handle<SharedClient>::Use use(handle_);
    if (!use) throw py::value_error("the client is closed");
    return body(*use);
  }
  static std::vector<Held> hold_all(const py::iterable& objects,
                                    Held::For what = Held::For::kReading) {
    std::vector<Held> held;
    for (const py::handle object : objects)
      held.emplace_back(object, what);
    return held;
  }
  static std::vector<std::string_view> texts_of(const std::vector<Held>& held) {
    std::vector<std::string_view> texts;
    texts.reserve(held.size());
    for (const Held& each : held)
      texts.push_back(each.text());
    return texts;
  }

  c::Handle<SharedClient> handle_;
};

}  // namespace

void define_client(py::module_& module) {
  using py::arg;
  const auto kw = py::kw_only();
  const py::object none = py::none();
  // Operations hold it by its buffer protocol: it lives as long as READs may land in it.
  py::class_<RegisteredBuffer> memory(module, "RegisteredMemory", py::buffer_protocol());
  forbid_new(memory);
  memory
      .def_buffer([](RegisteredBuffer& of) {
        const std::span<std::byte> bytes = of.bytes();
        return py::buffer_info(reinterpret_cast<std::uint8_t*>(bytes.data()),
                               static_cast<py::ssize_t>(bytes.size()));
      })
      .def("__len__", [](const RegisteredBuffer& of) { return of.bytes().size(); });
  py::class_<PyClient> client(module, "Client");
  forbid_new(client);
  module.def("connect", [](const py::kwargs& given) { return std::make_unique<PyClient>(given); });
  client.def("close", &PyClient::close)
      .def("get", &PyClient::get, arg("key"), arg("default") = none, kw, arg("timeout") = none)
      .def("get_with_version", &PyClient::get_with_version, arg("key"), kw, arg("timeout") = none)
      .def("get_into", &PyClient::get_into, arg("key"), arg("buffer"), kw, arg("timeout") = none)
      .def("allocate", &PyClient::allocate, arg("bytes"))
      .def("put", &PyClient::put, arg("key"), arg("value"), kw, arg("ttl") = none,
           arg("if_absent") = false, arg("if_version") = none, arg("durability") = none,
           arg("timeout") = none)
      .def("delete", &PyClient::remove, arg("key"), kw, arg("if_version") = none,
           arg("durability") = none, arg("timeout") = none)
      .def("incr", &PyClient::incr, arg("key"), arg("by") = 1, kw, arg("durability") = none,
           arg("timeout") = none)
      .def("get_counter", &PyClient::get_counter, arg("key"), kw, arg("timeout") = none)
      .def("multi_get", &PyClient::multi_get, arg("keys"), kw, arg("timeout") = none)
      .def("multi_get_into", &PyClient::multi_get_into, arg("keys"), arg("buffers"), kw,
           arg("timeout") = none)
      .def("multi_put", &PyClient::multi_put, arg("items"), kw, arg("ttl") = none,
           arg("durability") = none, arg("timeout") = none)
      .def("scan_page", &PyClient::scan_page)
      .def("ping", &PyClient::ping, kw, arg("timeout") = none)
      .def("flush", &PyClient::flush, kw, arg("timeout") = none)
      .def("server_stats", &PyClient::server_stats, kw, arg("timeout") = none)
      .def_property_readonly("one_sided_gets", &PyClient::one_sided_gets)
      .def_property_readonly("transport", &PyClient::describe);
}

}  // namespace rkv::python
