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
  if (const LiveRecord* const found = engine.try_get_sync(as_bytes(key), options.at_least)) {
    return to_value(engine.view(*found));
  }
  const auto got = engine.get(as_bytes(key), options.at_least, engine.deadline(options.timeout));
  if (!got) return std::unexpected(got.error());
  return to_value(got->view());
}

Result<ValueSize> get_into(Engine& engine, std::string_view key, std::span<std::byte> out,
                           const GetOptions& options) {
  if (const LiveRecord* const found = engine.try_get_sync(as_bytes(key), options.at_least)) {
    return engine.copy_out(*found, out);
  }
  const Engine::Destination into{.bytes = out};
  const auto got =
      engine.get(as_bytes(key), options.at_least, engine.deadline(options.timeout), &into);
  if (!got) return std::unexpected(got.error());
  return engine.copy_out(*got, out);
}

Result<Request> put_request(std::string_view key, std::string_view value,
                            const PutOptions& options) {
  if (options.if_absent && options.if_version) {
    return fail(Code::kInvalidArgument, "a put has at most one condition: if_absent or if_version");
  }
  const std::int64_t ttl_ms = options.ttl.count();
  if (ttl_ms < 0 || static_cast<std::uint64_t>(ttl_ms) > kMaxTtlMs) {
    return fail(Code::kInvalidArgument, "a time to live is 1 ms to 2^42 ms, or 0 for no expiry");
  }
  if ((ttl_ms != 0 && options.expires_at_ms != 0) || options.expires_at_ms > kMaxTtlMs) {
    return fail(Code::kInvalidArgument,
                "a put has at most one of ttl and expires_at_ms; each is at most 2^42 ms");
  }
  Request put{.opcode = Opcode::kPut, .key = as_bytes(key)};
  put.value = as_bytes(value);
  put.until = options.expires_at_ms != 0;
  put.ttl_ms = put.until ? options.expires_at_ms : static_cast<std::uint64_t>(ttl_ms);
  put.durability = options.durability;
  if (options.if_absent) put.condition = Condition::kIfAbsent;
  if (options.if_version) {
    put.condition = Condition::kIfVersion;
    put.expected = {*options.if_version};
  }
  return put;
}

Result<std::uint64_t> put(Engine& engine, std::string_view key, std::string_view value,
                          const PutOptions& options) {
  RKV_ASSIGN_OR_RETURN(const Request put, put_request(key, value, options));
  return version_of(engine.write(put, engine.deadline(options.timeout)));
}

Result<std::uint64_t> remove(Engine& engine, std::string_view key,
                             std::optional<std::uint64_t> version, const WriteOptions& options) {
  Request remove{.opcode = Opcode::kRemove, .durability = options.durability, .key = as_bytes(key)};
  if (version) {
    remove.condition = Condition::kIfVersion;
    remove.expected = {*version};
  }
  return version_of(engine.write(remove, engine.deadline(options.timeout)));
}

Result<Counter> incr(Engine& engine, std::string_view key, std::int64_t by,
                     const WriteOptions& options) {
  return engine.add(as_bytes(key), by, engine.deadline(options.timeout), options.durability);
}

Result<Counter> incr(Engine& engine, OneSidedCounter& counter, std::int64_t by,
                     const WriteOptions& options) {
  return engine.add(counter, by, engine.deadline(options.timeout), options.durability);
}

Result<CounterSwap> counter_cas(Engine& engine, std::string_view key, std::int64_t expected,
                                std::int64_t desired, const WriteOptions& options) {
  return engine.swap(as_bytes(key), expected, desired, engine.deadline(options.timeout),
                     options.durability);
}

Result<CounterSwap> counter_cas(Engine& engine, OneSidedCounter& counter, std::int64_t expected,
                                std::int64_t desired, const WriteOptions& options) {
  return engine.swap(counter, expected, desired, engine.deadline(options.timeout),
                     options.durability);
}

Result<Counter> get_counter(Engine& engine, std::string_view key, Timeout timeout) {
  return engine.number(as_bytes(key), engine.deadline(timeout));
}

Result<Counter> get_counter(Engine& engine, OneSidedCounter& counter, Timeout timeout) {
  return engine.number(counter, engine.deadline(timeout));
}

Result<OneSidedCounter> open_counter(Engine& engine, std::string_view key,
                                     const OpenOptions& options) {
  return engine.open_counter(key, options.create, engine.deadline(options.timeout));
}

}  // namespace rkv::client
