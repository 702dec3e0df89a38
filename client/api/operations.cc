// The operations on one key, on the engine of its server.
#include "rkv/operations.h"

#include "client/engine/engine.h"

namespace rkv::client {

namespace {

Result<std::uint64_t> version_of(const Result<Reply>& reply) {
  if (!reply) return std::unexpected(reply.error());
  return reply->response().version.bits;
}

}  // namespace

Result<Value> get(Engine& engine, std::string_view key, const GetOptions& options) {
  return engine.getter.get(as_bytes(key), options);
}

Result<ValueSize> get_into(Engine& engine, std::string_view key, std::span<std::byte> out,
                           const GetOptions& options) {
  return engine.getter.get_into(as_bytes(key), options, {.bytes = out});
}

Result<std::uint64_t> put(Engine& engine, std::string_view key, std::string_view value,
                          const PutOptions& options) {
  RKV_ASSIGN_OR_RETURN(const Request put, put_request(key, value, options));
  return version_of(engine.requester.write(put, engine.connector.deadline(options.timeout)));
}

Result<std::uint64_t> remove(Engine& engine, std::string_view key,
                             std::optional<std::uint64_t> version, const WriteOptions& options) {
  Request remove{.opcode = Opcode::kRemove, .durability = options.durability, .key = as_bytes(key)};
  if (version) {
    remove.condition = Condition::kIfVersion;
    remove.expected = {*version};
  }
  return version_of(engine.requester.write(remove, engine.connector.deadline(options.timeout)));
}

Result<Counter> incr(Engine& engine, std::string_view key, std::int64_t by,
                     const WriteOptions& options) {
  return engine.counters.add(as_bytes(key), by, engine.connector.deadline(options.timeout),
                             options.durability);
}

Result<Counter> incr(Engine& engine, OneSidedCounter& counter, std::int64_t by,
                     const WriteOptions& options) {
  return engine.counters.add(counter, by, engine.connector.deadline(options.timeout),
                             options.durability);
}

Result<CounterSwap> counter_cas(Engine& engine, std::string_view key, std::int64_t expected,
                                std::int64_t desired, const WriteOptions& options) {
  return engine.counters.swap(as_bytes(key), expected, desired,
                              engine.connector.deadline(options.timeout), options.durability);
}

Result<CounterSwap> counter_cas(Engine& engine, OneSidedCounter& counter, std::int64_t expected,
                                std::int64_t desired, const WriteOptions& options) {
  return engine.counters.swap(counter, expected, desired,
                              engine.connector.deadline(options.timeout), options.durability);
}

Result<Counter> get_counter(Engine& engine, std::string_view key, Timeout timeout) {
  return engine.getter.get_number(as_bytes(key), engine.connector.deadline(timeout));
}

Result<Counter> get_counter(Engine& engine, OneSidedCounter& counter, Timeout timeout) {
  return engine.counters.number(counter, engine.connector.deadline(timeout));
}

Result<OneSidedCounter> open_counter(Engine& engine, std::string_view key,
                                     const OpenOptions& options) {
  return engine.counters.open(key, options.create, engine.connector.deadline(options.timeout));
}

}  // namespace rkv::client
