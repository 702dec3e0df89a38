// The client of C that any number of threads use.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/c/errors.h"
#include "client/c/handle.h"
#include "client/c/options.h"
#include "client/c/values.h"
#include "rkv/shared_client.h"

struct rkv_client : rkv::c::Handle<rkv::SharedClient> {  // NOLINT(readability-identifier-naming)
  using Handle::Handle;
};

struct rkv_buffer {  // NOLINT(readability-identifier-naming)
  rkv::RegisteredBuffer memory;
};

namespace rkv::c {
namespace {

// Calls `body(client)`, which returns a status, unless the client is closed.
template <class Body>
rkv_status with(rkv_client* client, rkv_error* error, Body body) noexcept {
  return guarded(error, [&] {
    if (client == nullptr) return no_client(error);
    const rkv_client::Use use(*client);
    return use ? body(*use) : closed(error);
  });
}

rkv_status status_of(const Result<std::uint64_t>& result, std::uint64_t* version,
                     rkv_error* error) {
  if (!result) return report(result.error(), error);
  if (version != nullptr) *version = *result;
  return RKV_OK;
}

rkv_status number_of(const Result<Counter>& result, std::int64_t* number, rkv_error* error) {
  if (!result) return report(result.error(), error);
  if (number != nullptr) *number = result->number;
  return RKV_OK;
}

// Calls `body(client, text of the key, options)`.
template <class Given, class Options, class Body>
rkv_status on_key(rkv_client* client, const void* key, std::size_t key_size,
                  rkv_status (*read)(const Given*, Options&, rkv_error*), const Given* given,
                  rkv_error* error, Body body) noexcept {
  return with(client, error, [&](SharedClient& shared) {
    const auto text = text_of(key, key_size);
    if (!text) return no_bytes(error);
    Options options;
    if (const rkv_status wrong_options = read(given, options, error); wrong_options != RKV_OK)
      return wrong_options;
    return body(shared, *text, options);
  });
}

}  // namespace
}  // namespace rkv::c

using rkv::c::closed;
using rkv::c::copy_options;
using rkv::c::delete_options;
using rkv::c::DeleteOptions;
using rkv::c::get_options;
using rkv::c::guarded;
using rkv::c::no_bytes;
using rkv::c::no_client;
using rkv::c::number_of;
using rkv::c::on_key;
using rkv::c::plain_options;
using rkv::c::report;
using rkv::c::report_refused;
using rkv::c::status_of;
using rkv::c::text_of;
using rkv::c::texts_of;
using rkv::c::timeout_option;
using rkv::c::with;
using rkv::c::write_options;
using rkv::c::wrong;
using rkv::c::wrong_size;

extern "C" {

rkv_status rkv_connect(const rkv_options* options, rkv_client** client, rkv_error* error) {
  return guarded(error, [&] {
    if (client == nullptr) return wrong("the place for the client must not be NULL", error);
    const rkv_options defaults;
    const rkv_options& given = options == nullptr ? defaults : *options;
    std::string refusal;
    auto made = rkv::SharedClient::connect(given.client, given.connections, &refusal);
    if (!made) return report_refused(made.error(), refusal, error);
    *client = new rkv_client(std::move(*made));
    return rkv_status{RKV_OK};
  });
}

rkv_status rkv_close(rkv_client* client, rkv_error* error) {
  return guarded(error, [&] {
    if (client == nullptr) return no_client(error);
    return client->close() ? rkv_status{RKV_OK} : closed(error);
  });
}

void rkv_free(rkv_client* client) {
  if (client == nullptr) return;
  client->close();
  delete client;
}

const char* rkv_describe(rkv_client* client) {
  if (client == nullptr) return nullptr;
  const rkv_client::Use use(*client);
  return use ? use->describe().c_str() : nullptr;
}

rkv_status rkv_get(rkv_client* client, const void* key, size_t key_size,
                   const rkv_get_options* options, rkv_value** value, rkv_error* error) {
  if (value == nullptr) return wrong("the place for the value must not be NULL", error);
  return on_key(client, key, key_size, get_options, options, error,
                [&](rkv::SharedClient& shared, std::string_view name, rkv::GetOptions& get) {
                  auto got = shared.get(name, get);
                  if (!got) return report(got.error(), error);
                  *value = new rkv_value{std::move(*got)};
                  return rkv_status{RKV_OK};
                });
}

rkv_status rkv_get_into(rkv_client* client, const void* key, size_t key_size, void* buffer,
                        size_t capacity, const rkv_get_options* options, size_t* size,
                        uint64_t* version, rkv_error* error) {
  if (buffer == nullptr && capacity != 0)
    return wrong("a buffer of a capacity above 0 must not be NULL", error);
  return on_key(client, key, key_size, get_options, options, error,
                [&](rkv::SharedClient& shared, std::string_view name, rkv::GetOptions& get) {
                  const auto got =
                      shared.get_into(name, {static_cast<std::byte*>(buffer), capacity}, get);
                  if (!got) {
                    const std::size_t needed = rkv::SharedClient::needed_bytes();
                    if (size != nullptr && needed > capacity) *size = needed;
                    return report(got.error(), error);
                  }
                  if (size != nullptr) *size = got->bytes;
                  if (version != nullptr) *version = got->version;
                  return rkv_status{RKV_OK};
                });
}

rkv_status rkv_buffer_new(rkv_client* client, size_t bytes, rkv_buffer** buffer, rkv_error* error) {
  if (buffer == nullptr) return wrong("the place for the buffer must not be NULL", error);
  return with(client, error, [&](rkv::SharedClient& shared) {
    auto allocated = shared.allocate_buffer(bytes);
    if (!allocated) return report(allocated.error(), error);
    *buffer = new rkv_buffer{std::move(*allocated)};
    return rkv_status{RKV_OK};
  });
}

void* rkv_buffer_data(rkv_buffer* buffer) {
  return buffer == nullptr ? nullptr : buffer->memory.bytes().data();
}

size_t rkv_buffer_size(const rkv_buffer* buffer) {
  return buffer == nullptr ? 0 : buffer->memory.bytes().size();
}

void rkv_buffer_free(rkv_buffer* buffer) {
  delete buffer;
}

rkv_status rkv_put(rkv_client* client, const void* key, size_t key_size, const void* value,
                   size_t value_size, const rkv_write_options* options, uint64_t* version,
                   rkv_error* error) {
  const auto text = text_of(value, value_size);
  if (!text) return no_bytes(error);
  return on_key(client, key, key_size, write_options, options, error,
                [&](rkv::SharedClient& shared, std::string_view name, rkv::PutOptions& put) {
                  return status_of(shared.put_with(name, *text, put), version, error);
                });
}

rkv_status rkv_delete(rkv_client* client, const void* key, size_t key_size,
                      const rkv_write_options* options, uint64_t* version, rkv_error* error) {
  return on_key(client, key, key_size, delete_options, options, error,
                [&](rkv::SharedClient& shared, std::string_view name, DeleteOptions& given) {
                  return status_of(given.if_version ? shared.remove_if_version(
                                                          name, *given.if_version, given.write)
                                                    : shared.remove(name, given.write),
                                   version, error);
                });
}

rkv_status rkv_incr(rkv_client* client, const void* key, size_t key_size, int64_t by,
                    const rkv_write_options* options, int64_t* number, rkv_error* error) {
  return on_key(client, key, key_size, plain_options, options, error,
                [&](rkv::SharedClient& shared, std::string_view name, rkv::WriteOptions& write) {
                  return number_of(shared.incr(name, by, write), number, error);
                });
}

rkv_status rkv_counter_cas(rkv_client* client, const void* key, size_t key_size, int64_t expected,
                           int64_t desired, const rkv_write_options* options, int* done,
                           int64_t* number, rkv_error* error) {
  return on_key(client, key, key_size, plain_options, options, error,
                [&](rkv::SharedClient& shared, std::string_view name, rkv::WriteOptions& write) {
                  const auto swap = shared.counter_cas(name, expected, desired, write);
                  if (!swap) return report(swap.error(), error);
                  if (done != nullptr) *done = swap->done ? 1 : 0;
                  if (number != nullptr) *number = swap->number;
                  return rkv_status{RKV_OK};
                });
}

rkv_status rkv_get_counter(rkv_client* client, const void* key, size_t key_size,
                           const rkv_get_options* options, int64_t* number, rkv_error* error) {
  return on_key(client, key, key_size, timeout_option, options, error,
                [&](rkv::SharedClient& shared, std::string_view name, rkv::Timeout& timeout) {
                  return number_of(shared.get_counter(name, timeout), number, error);
                });
}

// ----------------------------------------------------------------------------------- many keys

rkv_status rkv_multi_get(rkv_client* client, const rkv_slice* keys, size_t count,
                         const rkv_get_options* options, rkv_value** values, rkv_status* statuses,
                         rkv_error* error) {
  return with(client, error, [&](rkv::SharedClient& shared) {
    if (count != 0 && (keys == nullptr || values == nullptr || statuses == nullptr))
      return wrong("keys, values and statuses must not be NULL", error);
    rkv::GetOptions get;
    if (const rkv_status given = get_options(options, get, error); given != RKV_OK) return given;
    std::vector<std::string_view> names;
    if (!texts_of(keys, count, names)) {
      return no_bytes(error);
    }
    if (error != nullptr) *error = {};
    auto all = shared.multi_get(names, get);
    std::vector<std::unique_ptr<rkv_value>> made(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (all[i]) made[i] = std::make_unique<rkv_value>(std::move(*all[i]));
    }
    bool has_failed = false;
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = made[i].release();
      statuses[i] = all[i] ? RKV_OK : static_cast<rkv_status>(all[i].error().code);
      const bool fails = !all[i] && all[i].error().code != rkv::Code::kNotFound;
      if (fails && !std::exchange(has_failed, true)) report(all[i].error(), error);
    }
    return rkv_status{RKV_OK};
  });
}

rkv_status rkv_multi_put(rkv_client* client, const rkv_slice* keys, const rkv_slice* values,
                         size_t count, const rkv_write_options* options, uint64_t* versions,
                         rkv_status* statuses, rkv_error* error) {
  return with(client, error, [&](rkv::SharedClient& shared) {
    if (count != 0 && (keys == nullptr || values == nullptr || statuses == nullptr))
      return wrong("keys, values and statuses must not be NULL", error);
    rkv::PutOptions put;
    if (const rkv_status given = write_options(options, put, error); given != RKV_OK) return given;
    if (put.if_absent || put.if_version) return wrong("many puts have no conditions", error);
    std::vector<std::string_view> names;
    std::vector<std::string_view> texts;
    if (!texts_of(keys, count, names) || !texts_of(values, count, texts)) return no_bytes(error);
    std::vector<rkv::KeyValue> items;
    items.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      items.push_back(
          {.key = names[i], .value = texts[i], .expires_at_ms = put.expires_at_ms, .ttl = put.ttl});
    }
    if (error != nullptr) *error = {};
    const auto all = shared.multi_put(
        items, rkv::WriteOptions{.durability = put.durability, .timeout = put.timeout});
    bool has_failed = false;
    for (std::size_t i = 0; i < count; ++i) {
      statuses[i] = all[i] ? RKV_OK : static_cast<rkv_status>(all[i].error().code);
      if (all[i] && versions != nullptr) versions[i] = *all[i];
      if (!all[i] && !std::exchange(has_failed, true)) report(all[i].error(), error);
    }
    return rkv_status{RKV_OK};
  });
}

rkv_status rkv_scan(rkv_client* client, const rkv_scan_options* options, rkv_page** page,
                    rkv_error* error) {
  return with(client, error, [&](rkv::SharedClient& shared) {
    if (page == nullptr) return wrong("the place for the page must not be NULL", error);
    rkv_scan_options own;
    if (!copy_options(options, own)) return wrong_size(error);
    const auto prefix = text_of(own.prefix.data, own.prefix.size);
    const auto start = text_of(own.start.data, own.start.size);
    const auto end = text_of(own.end.data, own.end.size);
    const auto token = text_of(own.token.data, own.token.size);
    if (!prefix || !start || !end || !token) return no_bytes(error);
    auto read = shared.scan({.prefix = *prefix,
                             .start = *start,
                             .end = *end,
                             .reverse = own.reverse != 0,
                             .keys_only = own.keys_only != 0,
                             .limit = own.limit,
                             .token = *token,
                             .timeout = std::chrono::milliseconds(own.timeout_ms)});
    if (!read) return report(read.error(), error);
    *page = new rkv_page{std::move(*read)};
    return rkv_status{RKV_OK};
  });
}

// ---------------------------------------------------------------------------------- the server

rkv_status rkv_ping(rkv_client* client, uint32_t timeout_ms, rkv_error* error) {
  return with(client, error, [&](rkv::SharedClient& shared) {
    const auto pinged = shared.ping(std::chrono::milliseconds(timeout_ms));
    return pinged ? rkv_status{RKV_OK} : report(pinged.error(), error);
  });
}

rkv_status rkv_flush(rkv_client* client, uint32_t timeout_ms, rkv_error* error) {
  return with(client, error, [&](rkv::SharedClient& shared) {
    return status_of(shared.flush(std::chrono::milliseconds(timeout_ms)), nullptr, error);
  });
}

rkv_status rkv_server_stats(rkv_client* client, uint32_t timeout_ms, rkv_value** json,
                            rkv_error* error) {
  return with(client, error, [&](rkv::SharedClient& shared) {
    if (json == nullptr) return wrong("the place for the value must not be NULL", error);
    auto text = shared.server_stats(std::chrono::milliseconds(timeout_ms));
    if (!text) return report(text.error(), error);
    *json = new rkv_value{{.value = std::move(*text)}};
    return rkv_status{RKV_OK};
  });
}

}  // extern "C"
