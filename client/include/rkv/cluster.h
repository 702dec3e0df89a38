// rkv::Cluster: several kvservers as one store. Each key is kept on one of them (shard_map.h).
//
//   auto map = rkv::ShardMap::parse("10.0.0.1:7471,10.0.0.2:7471,10.0.0.3:7471");
//   auto cluster = rkv::Cluster::connect(*map);
//   if (!cluster) return complain(to_string(cluster.error()));
//   cluster->put("name", "value");
//   for (const auto& one : cluster->multi_get(keys)) ...     // in order, each with its own status
//
// It does what a Client does, and each operation on a key is that of a Client of the key's server:
// its promises, costs, errors and deadlines are those of client.h. What is different:
//
//  - Servers know nothing of each other. What is said of several keys - an order, a durability, a
//    page of a scan - holds for the keys of one server.
//  - A server that is down fails its own keys and no others: each of them by the deadline of its
//    call, with kUnreachable, kDisconnected, kTimeout or whatever the last attempt said. It is
//    connected again, with back-off, by the operations that need it. A way to one that was never
//    reached - the device that leads there - is looked for in the same manner.
//  - multi_get and multi_put have requests to all servers in flight at once, a batch with one
//    doorbell for each. A server that is slow or gone delays nobody's results but its own, though
//    the call returns when all are there. (To connect to one that is lost blocks: that begins when
//    half of the time is gone, and takes about a quarter of the rest from those that are well.)
//  - Versions are those of the key's server; versions of two servers do not compare.
//
// Who reaches a server by a map with other names or weights looks for keys elsewhere: all clients
// of a store must agree (shard_map.h, H1). No key is moved by the client when a map changes.
//
// Threads, fork: as a Client. Memory: a client's for each server, but the cache is shared out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "rkv/client.h"
#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/shard_map.h"

namespace rkv {

namespace client {
class Doorkeeper;
struct Sorted;
class Ways;
}  // namespace client

class RKV_EXPORT Cluster {
 public:
  using Timeout = Client::Timeout;

  // Connects to each server of the map once, one after the other: blocks for options.timeout at
  // most, of which each has an equal part. `options.server` is not looked at; options.cache_bytes
  // is that of all servers together.
  //
  // A server that does not answer, or takes no client just now, is no error, as long as one does:
  // it is tried again by the operations on its keys. Errors, with a sentence in `problem` that
  // names the server: kInvalidArgument: two servers of the list are one process (found out by the
  // epoch that each start of a kvserver draws); kUnreachable: a host name that does not exist, or
  // none of all answers; kVersionMismatch, kCorrupt, kRejected, kPermission, kNoDevice: what trying
  // again would not help.
  static Result<Cluster> connect(const ShardMap& map, const ClientOptions& options = {},
                                 std::string* problem = nullptr);
  // The same over one transport made by the caller. `clock` must outlive the cluster; null = the
  // steady clock.
  static Result<Cluster> connect(const ShardMap& map, const ClientOptions& options,
                                 std::shared_ptr<rdma::Transport> transport,
                                 const Clock* clock = nullptr, std::string* problem = nullptr);

  Cluster(Cluster&&) noexcept;
  Cluster& operator=(Cluster&&) noexcept;
  ~Cluster();

  const ShardMap& map() const { return map_; }
  // From now on keys are where this map says. Connections to servers that are in both maps, with
  // the same name and address, stay as they are with their caches; others are closed, or made with
  // an equal share of options.cache_bytes.
  // Blocks and fails as connect(); after an error everything is as before. Nothing is moved: a key
  // that belongs to another server now is not found there until somebody puts it there.
  Status use(const ShardMap& map, std::string* problem = nullptr);

  // ---- one key: as Client.

  Result<Value> get(std::string_view key, Timeout timeout = {}) {
    return get(key, GetOptions{.timeout = timeout});
  }
  Result<Value> get(std::string_view key, const GetOptions& options) {
    return on(key, options.timeout, [&](Client& client) { return client.get(key, options); });
  }
  Result<ValueSize> get_into(std::string_view key, std::span<std::byte> out, Timeout timeout = {}) {
    return get_into(key, out, GetOptions{.timeout = timeout});
  }
  Result<ValueSize> get_into(std::string_view key, std::span<std::byte> out,
                             const GetOptions& options) {
    return on(key, options.timeout,
              [&](Client& client) { return client.get_into(key, out, options); });
  }
  // Of the last get_into().
  std::size_t needed_bytes() const { return clients_[last_] ? clients_[last_]->needed_bytes() : 0; }

  Result<std::uint64_t> put(std::string_view key, std::string_view value, Timeout timeout = {}) {
    return put(key, value, WriteOptions{.timeout = timeout});
  }
  Result<std::uint64_t> put(std::string_view key, std::string_view value,
                            const WriteOptions& options) {
    return on(key, options.timeout,
              [&](Client& client) { return client.put(key, value, options); });
  }
  Result<std::uint64_t> put_with(std::string_view key, std::string_view value,
                                 const PutOptions& options) {
    return on(key, options.timeout,
              [&](Client& client) { return client.put_with(key, value, options); });
  }
  Result<std::uint64_t> put_if_absent(std::string_view key, std::string_view value,
                                      Timeout timeout = {}) {
    return put_if_absent(key, value, WriteOptions{.timeout = timeout});
  }
  Result<std::uint64_t> put_if_absent(std::string_view key, std::string_view value,
                                      const WriteOptions& options) {
    return on(key, options.timeout,
              [&](Client& client) { return client.put_if_absent(key, value, options); });
  }
  Result<std::uint64_t> put_if_version(std::string_view key, std::string_view value,
                                       std::uint64_t version, Timeout timeout = {}) {
    return put_if_version(key, value, version, WriteOptions{.timeout = timeout});
  }
  Result<std::uint64_t> put_if_version(std::string_view key, std::string_view value,
                                       std::uint64_t version, const WriteOptions& options) {
    return on(key, options.timeout,
              [&](Client& client) { return client.put_if_version(key, value, version, options); });
  }
  Result<std::uint64_t> remove(std::string_view key, Timeout timeout = {}) {
    return remove(key, WriteOptions{.timeout = timeout});
  }
  Result<std::uint64_t> remove(std::string_view key, const WriteOptions& options) {
    return on(key, options.timeout, [&](Client& client) { return client.remove(key, options); });
  }
  Result<std::uint64_t> remove_if_version(std::string_view key, std::uint64_t version,
                                          Timeout timeout = {}) {
    return remove_if_version(key, version, WriteOptions{.timeout = timeout});
  }
  Result<std::uint64_t> remove_if_version(std::string_view key, std::uint64_t version,
                                          const WriteOptions& options) {
    return on(key, options.timeout,
              [&](Client& client) { return client.remove_if_version(key, version, options); });
  }

  // ---- counters: as Client.

  Result<Counter> incr(std::string_view key, std::int64_t by = 1, Timeout timeout = {}) {
    return incr(key, by, WriteOptions{.timeout = timeout});
  }
  Result<Counter> incr(std::string_view key, std::int64_t by, const WriteOptions& options) {
    return on(key, options.timeout, [&](Client& client) { return client.incr(key, by, options); });
  }
  Result<Counter> decr(std::string_view key, std::int64_t by = 1, Timeout timeout = {}) {
    return decr(key, by, WriteOptions{.timeout = timeout});
  }
  Result<Counter> decr(std::string_view key, std::int64_t by, const WriteOptions& options) {
    return on(key, options.timeout, [&](Client& client) { return client.decr(key, by, options); });
  }
  Result<CounterSwap> counter_cas(std::string_view key, std::int64_t expected, std::int64_t desired,
                                  Timeout timeout = {}) {
    return counter_cas(key, expected, desired, WriteOptions{.timeout = timeout});
  }
  Result<CounterSwap> counter_cas(std::string_view key, std::int64_t expected, std::int64_t desired,
                                  const WriteOptions& options) {
    return on(key, options.timeout,
              [&](Client& client) { return client.counter_cas(key, expected, desired, options); });
  }
  Result<Counter> get_counter(std::string_view key, Timeout timeout = {}) {
    return on(key, timeout, [&](Client& client) { return client.get_counter(key, timeout); });
  }
  // A counter that was opened under another map is opened again by its next operation.
  Result<OneSidedCounter> open_counter(std::string_view key, Timeout timeout = {}) {
    return open_counter(key, OpenOptions{.timeout = timeout});
  }
  Result<OneSidedCounter> open_counter(std::string_view key, const OpenOptions& options) {
    return on(key, options.timeout,
              [&](Client& client) { return client.open_counter(key, options); });
  }
  Result<Counter> incr(OneSidedCounter& counter, std::int64_t by = 1,
                       const WriteOptions& options = {}) {
    return on(counter.key(), options.timeout,
              [&](Client& client) { return client.incr(counter, by, options); });
  }
  Result<Counter> decr(OneSidedCounter& counter, std::int64_t by = 1,
                       const WriteOptions& options = {}) {
    return on(counter.key(), options.timeout,
              [&](Client& client) { return client.decr(counter, by, options); });
  }
  Result<CounterSwap> counter_cas(OneSidedCounter& counter, std::int64_t expected,
                                  std::int64_t desired, const WriteOptions& options = {}) {
    return on(counter.key(), options.timeout, [&](Client& client) {
      return client.counter_cas(counter, expected, desired, options);
    });
  }
  Result<Counter> get_counter(OneSidedCounter& counter, Timeout timeout = {}) {
    return on(counter.key(), timeout,
              [&](Client& client) { return client.get_counter(counter, timeout); });
  }
  // Pipelined on each server; the servers one after the other, each with its part of the time.
  std::vector<Result<Counter>> multi_incr(std::span<const CounterAddition> additions,
                                          Timeout timeout = {});

  // ---- many keys: as Client, on all servers at once. The timeout is that of the whole call.
  // Results in the order of the arguments, each with its own status.

  std::vector<Result<Value>> multi_get(std::span<const std::string_view> keys,
                                       Timeout timeout = {}) {
    return multi_get(keys, GetOptions{.timeout = timeout});
  }
  std::vector<Result<Value>> multi_get(std::span<const std::string_view> keys,
                                       const GetOptions& options);
  std::vector<Result<std::uint64_t>> multi_put(std::span<const KeyValue> items,
                                               Timeout timeout = {}) {
    return multi_put(items, WriteOptions{.timeout = timeout});
  }
  std::vector<Result<std::uint64_t>> multi_put(std::span<const KeyValue> items,
                                               const WriteOptions& options);
  // visit() is called once for each key, in any order; it must not use the cluster. Allocates only
  // when a call has more keys than any before.
  template <class Visitor>
  void multi_get_into(std::span<const std::string_view> keys, Visitor&& visit,
                      Timeout timeout = {}) {
    multi_get_into(keys, std::forward<Visitor>(visit), GetOptions{.timeout = timeout});
  }
  template <class Visitor>
  void multi_get_into(std::span<const std::string_view> keys, Visitor&& visit,
                      const GetOptions& options) {
    using Target = std::remove_reference_t<Visitor>;
    visit_all(
        keys,
        [](void* target, std::size_t index, const Result<ValueView>& result) {
          (*static_cast<Target*>(target))(index, result);
        },
        const_cast<void*>(static_cast<const void*>(&visit)), options);
  }
  template <class Visitor>
  void multi_put_each(std::span<const KeyValue> items, Visitor&& visit,
                      const WriteOptions& options = {}) {
    using Target = std::remove_reference_t<Visitor>;
    put_all(
        items,
        [](void* target, std::size_t index, const Result<std::uint64_t>& version) {
          (*static_cast<Target*>(target))(index, version);
        },
        const_cast<void*>(static_cast<const void*>(&visit)), options);
  }

  // ---- keys in order

  // One page of all servers: a request to each, one after the other, merged. Each server's part is
  // that server at one instant after the call began, which is another one for each; otherwise
  // scan.h holds. Keys are shown that a GET would find: those that lie on another server than the
  // map says, from the time of another map, are not. The token goes on with any list of servers
  // that has the same data, and with a single one of them. An error of one server is that of the
  // page. Up to 128 KiB for each server.
  Result<ScanPage> scan(const ScanOptions& options = {});

  // ---- the servers: a result for each, in the order of map().servers(). They are asked one after
  // the other, those that are connected first; each has its part of the time.

  std::vector<Status> ping(Timeout timeout = {});
  // kStale is of the one server that has restarted. A server that use() has left out is not asked.
  std::vector<Result<std::uint64_t>> flush(Timeout timeout = {});
  // Each makes one of this name on its own host. They are of different instants.
  std::vector<Result<std::uint64_t>> backup(std::string_view name, Timeout timeout = {});
  std::vector<Result<std::string>> server_stats(Timeout timeout = {});

  // ---- this cluster

  ClientStats stats() const;  // of all servers together
  // Of one server: for what a cluster does not have, registered buffers above all. Stays until
  // use() is called. kUnreachable and others: there was no way to it yet. REQUIRES an index of
  // map().servers().
  Result<Client*> client_at(std::size_t index);
  Result<Client*> client_of(std::string_view key) { return client_at(map_.shard_of(key)); }
  const ShardServer& server_of(std::string_view key) const {
    return map_.servers()[map_.shard_of(key)];
  }
  // What the last operation on one key, or the error of the last scan(), was of.
  const ShardServer& last_server() const { return map_.servers()[last_]; }
  // What that one, or the key's, said with the last request or connection that it refused.
  const std::string& last_refusal() const { return refusal_of(last_); }
  const std::string& last_refusal(std::string_view key) const {
    return refusal_of(map_.shard_of(key));
  }
  // As Client::describe(), of all servers.
  const std::string& describe() const { return description_; }

 private:
  using RawVisitor = Client::RawVisitor;
  using RawPutVisitor = Client::RawPutVisitor;
  using Clients = std::vector<std::unique_ptr<Client>>;
  struct Merge;  // of a scan
  // While it lives no operation of the client goes on beyond `at`.
  class RKV_EXPORT Hold {
   public:
    Hold(Client& client, Nanos at);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Client& client_;
  };

  Cluster(const ShardMap& map, const ClientOptions& options,
          std::shared_ptr<rdma::Transport> transport, const Clock* clock);
  template <class Call>
  auto on(std::string_view key, Timeout timeout, Call call) -> std::invoke_result_t<Call, Client&> {
    last_ = map_.shard_of(key);
    if (clients_[last_] != nullptr) [[likely]]
      return call(*clients_[last_]);
    const Deadline deadline = deadline_of(timeout);
    Client* const client = find_way(last_, deadline);
    if (client == nullptr) return std::unexpected(no_way_);
    const Hold hold(*client, deadline.at());  // what was spent on the way counts
    return call(*client);
  }
  // Asks some servers, or until the first error.
  using Ask = std::function<Status(Client& client, std::size_t index, Timeout timeout)>;
  std::vector<Status> ask(std::vector<std::size_t> servers, Timeout timeout, bool to_the_end,
                          const Ask& ask);
  std::vector<std::size_t> all_servers() const;
  template <class T, class Call>
  std::vector<T> on_each(Timeout timeout, Call call);
  // Null: there is none, or it is too early to look again; no_way_ says why. Blocks until the
  // deadline at most.
  Client* find_way(std::size_t index, const Deadline& deadline);
  const std::string& refusal_of(std::size_t index) const;
  Deadline deadline_of(Timeout timeout) const;  // zero = that of the options
  Result<std::unique_ptr<Client>> make_client(const ShardMap& map, std::size_t index,
                                              const Deadline& deadline);
  static Result<Cluster> open(Cluster cluster, std::string* problem);
  Status connect_all(const ShardMap& map, Clients& clients, std::string* problem);
  Status connect_one(const ShardMap& map, std::size_t index, std::unique_ptr<Client>& client,
                     Timeout patience);
  void describe_clients();
  void visit_all(std::span<const std::string_view> keys, RawVisitor visit, void* target,
                 const GetOptions& options);
  void put_all(std::span<const KeyValue> items, RawPutVisitor visit, void* target,
               const WriteOptions& options);
  template <class Add, class Fail>
  void run_flows(Timeout timeout, Add add, Fail fail);

  ShardMap map_;
  ClientOptions options_;
  std::shared_ptr<rdma::Transport> transport_;      // for all servers; null = chosen for each
  const Clock* clock_;                              // never null
  std::unique_ptr<client::Doorkeeper> doorkeeper_;  // before the clients: destroyed after them
  Clients clients_;                                 // a server's is null until there is a way to it
  std::unique_ptr<client::Ways> ways_;              // to those
  std::unique_ptr<client::Sorted> sorted_;          // of multi_get and multi_put
  std::size_t last_ = 0;
  Error no_way_{};
  std::string description_;
};

}  // namespace rkv
