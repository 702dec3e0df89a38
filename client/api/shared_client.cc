#include "rkv/shared_client.h"

#include <algorithm>
#include <utility>

#include "client/api/registered_state.h"
#include "client/api/shared_engines.h"
#include "client/async/outcomes.h"
#include "client/engine/destinations.h"
#include "client/link/choose.h"
#include "common/check.h"

namespace rkv {

using client::SharedEngines;
using Kind = AsyncRequest::Kind;

namespace {
thread_local std::size_t needed_by_this_thread = 0;

PutOptions as_put(const WriteOptions& options) {
  return {.timeout = options.timeout, .durability = options.durability};
}
}  // namespace

SharedClient::SharedClient(std::unique_ptr<SharedEngines> engines) : engines_(std::move(engines)) {}
SharedClient::SharedClient(SharedClient&&) noexcept = default;
SharedClient& SharedClient::operator=(SharedClient&&) noexcept = default;
SharedClient::~SharedClient() = default;

Result<SharedClient> SharedClient::connect(const ClientOptions& options, std::size_t connections,
                                           std::string* refusal) {
  RKV_ASSIGN_OR_RETURN(auto chosen, client::choose_transport(options, options.timeout));
  auto made = connect(options, connections, std::move(chosen.transport), nullptr, refusal);
  if (made) made->engines_->describe_as(std::move(chosen.reason));
  return made;
}

Result<SharedClient> SharedClient::connect(const ClientOptions& options, std::size_t connections,
                                           std::shared_ptr<rdma::Transport> transport,
                                           const Clock* clock, std::string* refusal) {
  if (transport == nullptr) return fail(Code::kInvalidArgument, "a client needs a transport");
  RKV_ASSIGN_OR_RETURN(auto engines, SharedEngines::create(options, connections,
                                                           std::move(transport), clock, refusal));
  return SharedClient(std::move(engines));
}

client::SharedEngines& SharedClient::engines() const {
  RKV_CHECK(engines_ != nullptr, "this rkv::SharedClient was moved from");
  return *engines_;
}

// ------------------------------------------------------------------------------------ one key

template <>
Result<Value> Operations<SharedClient>::get_value(std::string_view key, const GetOptions& options) {
  return store().engines().call<Value>({.kind = Kind::kGet, .key = key, .get = options},
                                       client::value_of);
}

template <>
Result<ValueSize> Operations<SharedClient>::get_bytes(std::string_view key,
                                                      std::span<std::byte> out,
                                                      const GetOptions& options) {
  std::size_t needed = 0;
  auto got = store().engines().call<ValueSize>(
      {.kind = Kind::kGet, .key = key, .get = options, .into = out},
      [&needed](const AsyncRequest& request, const Result<Outcome>& result) {
        if (result) needed = result->value.value.size();
        return client::size_of(request, result);
      });
  needed_by_this_thread = needed;
  return got;
}

template <>
Result<std::uint64_t> Operations<SharedClient>::put_with(std::string_view key,
                                                         std::string_view value,
                                                         const PutOptions& options) {
  return store().engines().call<std::uint64_t>(
      {.kind = Kind::kPut, .key = key, .value = value, .put = options}, client::version_of);
}

template <>
Result<std::uint64_t> Operations<SharedClient>::remove_version(std::string_view key,
                                                               std::optional<std::uint64_t> version,
                                                               const WriteOptions& options) {
  PutOptions put = as_put(options);
  put.if_version = version;
  return store().engines().call<std::uint64_t>({.kind = Kind::kRemove, .key = key, .put = put},
                                               client::version_of);
}

template <>
Result<Counter> Operations<SharedClient>::add(std::string_view key, std::int64_t by,
                                              const WriteOptions& options) {
  return store().engines().call<Counter>(
      {.kind = Kind::kAdd, .key = key, .operand = by, .put = as_put(options)},
      client::counter_after);
}

template <>
Result<CounterSwap> Operations<SharedClient>::swap(std::string_view key, std::int64_t expected,
                                                   std::int64_t desired,
                                                   const WriteOptions& options) {
  return store().engines().call<CounterSwap>({.kind = Kind::kSwap,
                                              .key = key,
                                              .operand = expected,
                                              .desired = desired,
                                              .put = as_put(options)},
                                             client::swap_of);
}

template <>
Result<Counter> Operations<SharedClient>::get_counter(std::string_view key, Timeout timeout) {
  return store().engines().call<Counter>(
      {.kind = Kind::kGet, .key = key, .get = {.timeout = timeout}}, client::counter_read);
}

// --------------------------------------------------------------------------- one-sided counters

template <>
Result<OneSidedCounter> Operations<SharedClient>::open(std::string_view key,
                                                       const OpenOptions& options) {
  return store().engines().exclusively(options.timeout, [&](Client& client, Timeout time) {
    return client.open_counter(key, OpenOptions{.create = options.create, .timeout = time});
  });
}

template <>
Result<Counter> Operations<SharedClient>::add(OneSidedCounter& counter, std::int64_t by,
                                              const WriteOptions& options) {
  return store().engines().exclusively(options.timeout, [&](Client& client, Timeout time) {
    return client.incr(counter, by, WriteOptions{options.durability, time});
  });
}

template <>
Result<CounterSwap> Operations<SharedClient>::swap(OneSidedCounter& counter, std::int64_t expected,
                                                   std::int64_t desired,
                                                   const WriteOptions& options) {
  return store().engines().exclusively(options.timeout, [&](Client& client, Timeout time) {
    return client.counter_cas(counter, expected, desired, WriteOptions{options.durability, time});
  });
}

template <>
Result<Counter> Operations<SharedClient>::get_counter(OneSidedCounter& counter, Timeout timeout) {
  return store().engines().exclusively(
      timeout, [&](Client& client, Timeout time) { return client.get_counter(counter, time); });
}

// ----------------------------------------------------------------------------------- many keys

void SharedClient::visit_all(std::span<const std::string_view> keys, client::GetVisitor visit,
                             void* target, const GetOptions& options) {
  engines().call_many(
      keys.size(), options.timeout,
      [&](std::size_t i) {
        return AsyncRequest{.kind = Kind::kGet, .key = keys[i], .get = options};
      },
      [&](std::size_t i, const Result<Outcome>& result) {
        visit(target, i, client::view_of(result));
      });
}

void SharedClient::put_all(std::span<const KeyValue> items, client::PutVisitor visit, void* target,
                           const WriteOptions& options) {
  engines().call_many(
      items.size(), options.timeout,
      [&](std::size_t i) {
        PutOptions put = as_put(options);
        put.expires_at_ms = items[i].expires_at_ms;
        put.ttl = items[i].ttl;
        return AsyncRequest{
            .kind = Kind::kPut, .key = items[i].key, .value = items[i].value, .put = put};
      },
      [&](std::size_t i, const Result<Outcome>& result) {
        visit(target, i,
              result ? Result<std::uint64_t>(result->version)
                     : Result<std::uint64_t>(std::unexpected(result.error())));
      });
}

void SharedClient::add_all(std::span<const CounterAddition> additions, Timeout timeout,
                           std::span<Result<Counter>> results) {
  const Status added = engines().exclusively(timeout, [&](Client& client, Timeout time) {
    const auto all = client.multi_incr(additions, time);
    std::ranges::copy(all, results.begin());
    return Status{};
  });
  if (!added) std::ranges::fill(results, Result<Counter>(std::unexpected(added.error())));
}

std::vector<Result<ValueSize>> SharedClient::multi_get_buffers(
    std::span<const std::string_view> keys, std::span<const std::span<std::byte>> buffers,
    const GetOptions& options, std::span<std::size_t> needed) {
  std::vector<Result<ValueSize>> results(
      keys.size(), fail(Code::kInvalidArgument, "there must be as many buffers as keys"));
  if (keys.size() != buffers.size()) return results;
  if (const Status valid = client::check_destinations(keys, buffers); !valid) {
    std::ranges::fill(results, Result<ValueSize>(std::unexpected(valid.error())));
    return results;
  }
  const auto request = [&](std::size_t i) {
    return AsyncRequest{.kind = Kind::kGet, .key = keys[i], .get = options, .into = buffers[i]};
  };
  engines().call_many(keys.size(), options.timeout, request,
                      [&](std::size_t i, const Result<Outcome>& result) {
                        results[i] = client::size_of(request(i), result);
                        if (i < needed.size() && result && !results[i])
                          needed[i] = result->value.value.size();
                      });
  return results;
}

Result<RegisteredBuffer> SharedClient::allocate_buffer(std::size_t bytes) {
  if (engines().is_inherited()) return std::unexpected(client::kInherited);
  RKV_ASSIGN_OR_RETURN(auto buffer, engines().memory()->allocate(bytes, rdma::Access::kLocal));
  return RegisteredBuffer(
      std::make_unique<RegisteredBuffer::State>(engines().memory(), std::move(buffer)));
}

// -------------------------------------------------------------------------------- the server

std::size_t SharedClient::needed_bytes() {
  return needed_by_this_thread;
}

const std::string& SharedClient::last_refusal() {
  return SharedEngines::refusal_of_this_thread();
}

Result<ScanPage> SharedClient::scan(const ScanOptions& options) {
  return engines().exclusively(options.timeout, [&](Client& client, Timeout time) {
    ScanOptions page = options;
    page.timeout = time;
    return client.scan(page);
  });
}

Status SharedClient::ping(Timeout timeout) {
  return engines().exclusively(timeout,
                               [](Client& client, Timeout time) { return client.ping(time); });
}

Result<std::uint64_t> SharedClient::flush(Timeout timeout) {
  return engines().flush(timeout);
}

Result<std::uint64_t> SharedClient::backup(std::string_view name, Timeout timeout) {
  return engines().backup(name, timeout);
}

Result<std::string> SharedClient::server_stats(Timeout timeout) {
  return engines().exclusively(
      timeout, [](Client& client, Timeout time) { return client.server_stats(time); });
}

ClientStats SharedClient::stats() const {
  return engines().stats();
}

const std::string& SharedClient::describe() const {
  return engines().describe();
}

}  // namespace rkv
