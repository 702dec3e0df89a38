// The operations on one key, on the engine of its server.
#include "rkv/operations.h"

#include "client/engine/engine.h"
#include "rkv/client.h"
#include "rkv/cluster.h"

namespace rkv {

namespace {

Result<std::uint64_t> version_of(const Result<client::Reply>& reply) {
  if (!reply) return std::unexpected(reply.error());
  return reply->response().version.bits;
}

}  // namespace

template <class Store>
Result<Value> Operations<Store>::get_value(std::string_view key, const GetOptions& options) {
  return store().on(key, options.timeout, [&](client::Engine& engine) {
    return engine.getter.get(as_bytes(key), options);
  });
}

template <class Store>
Result<ValueSize> Operations<Store>::get_bytes(std::string_view key, std::span<std::byte> out,
                                               const GetOptions& options) {
  return store().on(key, options.timeout, [&](client::Engine& engine) {
    return engine.getter.get_into(as_bytes(key), options, out);
  });
}

template <class Store>
Result<std::uint64_t> Operations<Store>::put_with(std::string_view key, std::string_view value,
                                                  const PutOptions& options) {
  return store().on(key, options.timeout, [&](client::Engine& engine) -> Result<std::uint64_t> {
    RKV_ASSIGN_OR_RETURN(const Request put, client::put_request(key, value, options));
    return version_of(engine.requester.write(put, engine.connector.deadline(options.timeout)));
  });
}

template <class Store>
Result<std::uint64_t> Operations<Store>::remove_version(std::string_view key,
                                                        std::optional<std::uint64_t> version,
                                                        const WriteOptions& options) {
  Request remove{.opcode = Opcode::kRemove, .durability = options.durability, .key = as_bytes(key)};
  if (version) {
    remove.condition = Condition::kIfVersion;
    remove.expected = {*version};
  }
  return store().on(key, options.timeout, [&](client::Engine& engine) {
    return version_of(engine.requester.write(remove, engine.connector.deadline(options.timeout)));
  });
}

template <class Store>
Result<Counter> Operations<Store>::add(std::string_view key, std::int64_t by,
                                       const WriteOptions& options) {
  return store().on(key, options.timeout, [&](client::Engine& engine) {
    return engine.counters.add(as_bytes(key), by, engine.connector.deadline(options.timeout),
                               options.durability);
  });
}

template <class Store>
Result<Counter> Operations<Store>::add(OneSidedCounter& counter, std::int64_t by,
                                       const WriteOptions& options) {
  return store().on(counter.key(), options.timeout, [&](client::Engine& engine) {
    return engine.counters.add(counter, by, engine.connector.deadline(options.timeout),
                               options.durability);
  });
}

template <class Store>
Result<CounterSwap> Operations<Store>::swap(std::string_view key, std::int64_t expected,
                                            std::int64_t desired, const WriteOptions& options) {
  return store().on(key, options.timeout, [&](client::Engine& engine) {
    return engine.counters.swap(as_bytes(key), expected, desired,
                                engine.connector.deadline(options.timeout), options.durability);
  });
}

template <class Store>
Result<CounterSwap> Operations<Store>::swap(OneSidedCounter& counter, std::int64_t expected,
                                            std::int64_t desired, const WriteOptions& options) {
  return store().on(counter.key(), options.timeout, [&](client::Engine& engine) {
    return engine.counters.swap(counter, expected, desired,
                                engine.connector.deadline(options.timeout), options.durability);
  });
}

template <class Store>
Result<Counter> Operations<Store>::get_counter(std::string_view key, Timeout timeout) {
  return store().on(key, timeout, [&](client::Engine& engine) {
    return engine.getter.get_number(as_bytes(key), engine.connector.deadline(timeout));
  });
}

template <class Store>
Result<Counter> Operations<Store>::get_counter(OneSidedCounter& counter, Timeout timeout) {
  return store().on(counter.key(), timeout, [&](client::Engine& engine) {
    return engine.counters.number(counter, engine.connector.deadline(timeout));
  });
}

template <class Store>
Result<OneSidedCounter> Operations<Store>::open(std::string_view key, const OpenOptions& options) {
  return store().on(key, options.timeout, [&](client::Engine& engine) {
    return engine.counters.open(key, options.create, engine.connector.deadline(options.timeout));
  });
}

template class Operations<Client>;
template class Operations<Cluster>;

}  // namespace rkv
