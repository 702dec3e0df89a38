// rkv::Cluster: several kvservers as one store. Each key is kept on one server (shard_map.h).
//
//   auto map = rkv::ShardMap::parse("10.0.0.1:7471,10.0.0.2:7471,10.0.0.3:7471");
//   auto cluster = rkv::Cluster::connect(*map);
//   if (!cluster) return complain(to_string(cluster.error()));
//   cluster->put("name", "value");
//   for (const auto& got : cluster->multi_get(keys)) ...     // in order, each with its own status
//
// A Cluster has the operations of a Client (operations.h). Each operation on a key is that of a
// Client of the key's server, with the same promises, costs, errors and deadlines. The differences:
//
//  - Servers know nothing of each other. A promise about several keys (an order, a durability, a
//    page of a scan) holds for the keys of one server.
//  - A server that is down fails its own keys and no others. Each of these operations fails by its
//    deadline with kUnreachable, kDisconnected, kTimeout or the error of the last attempt.
//    Operations that need the server reconnect to it, with back-off. If no device has been found
//    yet that leads to a server, operations repeat that search with back-off too.
//  - multi_get and multi_put have requests to all servers in flight at once; a batch for one server
//    costs one doorbell. A slow or lost server delays only its own results, but the call returns
//    when all results are there. Reconnecting to a lost server blocks the thread. It begins when
//    half of the time has passed, and takes about a quarter of the rest from the servers that still
//    answer.
//  - multi_incr is pipelined on each server. The servers take turns, each with its part of the
//  time.
//  - A one-sided counter that was opened under another map is opened again by its next operation.
//  - multi_get_into and multi_put_each allocate when a call has more keys than any before.
//  - Versions are those of the key's server; versions of two servers do not compare.
//
// A client with other names or weights in its map looks for keys on other servers: all clients of a
// store must agree (shard_map.h, SHARD-1). The client moves no key when a map changes.
//
// Threads, fork: as a Client. Memory: that of a Client for each server; the cache is divided.
#pragma once

#include <cstdint>
#include <expected>
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
#include "rkv/one_user.h"
#include "rkv/shard_map.h"

namespace rkv {

namespace client {
class DuplicateServerCheck;
struct ShardedBatch;
class RouteBackoff;
struct Credentials;
}  // namespace client

class RKV_EXPORT Cluster : public Operations<Cluster> {
 public:
  // Connects to each server of the map once, one after the other. Blocks for options.timeout at
  // most; each server gets an equal part of it. `options.server` is ignored unless
  // the map has one server and it lists the servers of that one's group; options.cache_bytes is
  // the total for all servers.
  //
  // A server that does not answer, or accepts no client at the moment, is not an error as long as
  // another server answers. Operations on its keys try the connection again.
  // Errors, with a sentence in `problem` that names the server:
  //  - kInvalidArgument: two servers of the list are one process. The client compares epochs, which
  //    each start of a kvserver draws at random.
  //  - kUnreachable: a host name does not exist, or no server answers.
  //  - kVersionMismatch, kCorrupt, kRejected, kUnauthenticated, kPermission, kNoDevice: a retry
  //    does not help.
  static Result<Cluster> connect(const ShardMap& map, const ClientOptions& options = {},
                                 std::string* problem = nullptr);
  // As above, over one transport created by the caller. `clock` must outlive the cluster; null =
  // the steady clock.
  static Result<Cluster> connect(const ShardMap& map, const ClientOptions& options,
                                 std::shared_ptr<rdma::Transport> transport,
                                 const Clock* clock = nullptr, std::string* problem = nullptr);

  Cluster(Cluster&&) noexcept;
  Cluster& operator=(Cluster&&) noexcept;
  ~Cluster();

  const ShardMap& map() const { return map_; }
  // Replaces the map. Servers that are in both maps with the same name and address keep their
  // connections and caches. Connections to other old servers are closed; new servers get an equal
  // share of options.cache_bytes.
  // Blocks and fails as connect(); after an error everything is as before. No key is moved: a key
  // that now belongs to another server is not found there until a client puts it there.
  Status use(const ShardMap& map, std::string* problem = nullptr);

  // The length that the last get_into() needed, as Client::needed_bytes().
  std::size_t needed_bytes() const {
    user_.check_owner();
    return clients_[last_] ? clients_[last_]->needed_bytes() : 0;
  }

  // ---- keys in order

  // Reads one page of all servers: sends a request to each server in turn and merges the answers.
  // Each server's part is its state at one instant after the call began; the instants differ
  // between servers. Otherwise scan.h holds.
  // The page shows keys that a GET would find. Keys that an earlier map left on another server are
  // not shown. The token is valid with any list of servers that has the same data, and with one of
  // these servers alone. An error of one server is the error of the page. A page has up to 128 KiB
  // for each server.
  Result<ScanPage> scan(const ScanOptions& options = {});

  // ---- the servers: a result for each, in the order of map().servers(). The cluster asks them one
  // after the other, connected servers first; each has its part of the time.

  std::vector<Status> ping(Timeout timeout = {});
  // kStale concerns only the server that has restarted. A server that use() removed is not asked.
  std::vector<Result<std::uint64_t>> flush(Timeout timeout = {});
  // Each server makes a backup of this name on its own host. The backups are of different instants.
  std::vector<Result<std::uint64_t>> backup(std::string_view name, Timeout timeout = {});
  std::vector<Result<std::string>> server_stats(Timeout timeout = {});
  // Each server ends the sessions of this user and refuses it from then on, as
  // Client::revoke_user(). A server that does not answer has not: ask it again.
  std::vector<Result<std::uint64_t>> revoke_user(std::string_view name, Timeout timeout = {});

  // ---- this cluster

  ClientStats stats() const;  // sum over all servers
  // The client of one server, for operations that Cluster does not have, such as those with
  // registered buffers. The pointer is valid until use() is called. kUnreachable and other errors:
  // no transport to the server was found yet. REQUIRES an index of map().servers().
  Result<Client*> client_at(std::size_t index);
  Result<Client*> client_of(std::string_view key) {
    user_.check_owner();
    return client_at(map_.shard_of(key));
  }
  const ShardServer& server_of(std::string_view key) const {
    user_.check_owner();
    return map_.servers()[map_.shard_of(key)];
  }
  // The server of the last operation on one key, or of the error of the last scan().
  const ShardServer& last_server() const {
    user_.check_owner();
    return map_.servers()[last_];
  }
  // The message with the last request or connection that last_server(), or the key's server,
  // refused.
  const std::string& last_refusal() const { return refusal_of(last_); }
  const std::string& last_refusal(std::string_view key) const {
    user_.check_owner();
    return refusal_of(map_.shard_of(key));
  }
  // As Client::describe(), for all servers.
  const std::string& describe() const { return description_; }

 private:
  friend class Operations<Cluster>;
  using Clients = std::vector<std::unique_ptr<Client>>;
  struct Merge;  // merges the pages of a scan
  // Caps the deadlines of the client's operations at `at` until it is destroyed.
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
  auto on(std::string_view key, Timeout timeout, Call call)
      -> std::invoke_result_t<Call, client::Engine&> {
    if (user_.is_inherited()) [[unlikely]]
      return std::unexpected(client::kInherited);
    const client::OneUser::Use use(user_);
    last_ = map_.shard_of(key);
    if (clients_[last_] != nullptr) [[likely]]
      return call(*clients_[last_]->engine_);
    const Deadline deadline = deadline_of(timeout);
    Client* const client = open_client(last_, deadline);
    if (client == nullptr) return std::unexpected(client_error_);
    const Hold hold(*client, deadline.at());  // the time that open_client() took counts
    return call(*client->engine_);
  }
  // Calls `ask` for some servers; stops at the first error unless `to_the_end`.
  using Ask = std::function<Status(Client& client, std::size_t index, Timeout timeout)>;
  std::vector<Status> ask(std::vector<std::size_t> servers, Timeout timeout, bool to_the_end,
                          const Ask& ask);
  std::vector<std::size_t> all_servers() const;
  template <class T, class Call>
  std::vector<T> on_each(Timeout timeout, Call call);
  // Finds a transport to the server and creates its client. Null: there is none, or the back-off
  // has not passed; client_error_ says why. Blocks until the deadline at most.
  Client* open_client(std::size_t index, const Deadline& deadline);
  const std::string& refusal_of(std::size_t index) const;
  Deadline deadline_of(Timeout timeout) const;  // zero = options_.timeout
  Result<std::unique_ptr<Client>> make_client(const ShardMap& map, std::size_t index,
                                              const Deadline& deadline);
  static Result<Cluster> open(const ShardMap& map, const ClientOptions& options,
                              std::shared_ptr<rdma::Transport> transport, const Clock* clock,
                              std::string* problem);
  Status connect_all(const ShardMap& map, Clients& clients, std::string* problem);
  Status connect_one(const ShardMap& map, std::size_t index, std::unique_ptr<Client>& client,
                     Timeout patience);
  void describe_clients();
  void visit_all(std::span<const std::string_view> keys, client::GetVisitor visit, void* target,
                 const GetOptions& options);
  void put_all(std::span<const KeyValue> items, client::PutVisitor visit, void* target,
               const WriteOptions& options);
  void add_all(std::span<const CounterAddition> additions, Timeout timeout,
               std::span<Result<Counter>> results);
  template <class Add, class Fail>
  void run_flows(Timeout timeout, Add add, Fail fail);

  ShardMap map_;
  ClientOptions options_;                                   // without the secret
  std::unique_ptr<const client::Credentials> credentials_;  // null: no user
  std::shared_ptr<rdma::Transport> transport_;  // for all servers; null = choose one for each
  const Clock* clock_;                          // never null
  std::unique_ptr<client::DuplicateServerCheck>
      duplicate_server_check_;  // before the clients: destroyed after them
  Clients clients_;             // null until a transport to the server is found
  std::unique_ptr<client::RouteBackoff> route_backoff_;  // to servers without a client
  std::unique_ptr<client::ShardedBatch> sharded_batch_;  // of multi_get and multi_put
  std::size_t last_ = 0;
  Error client_error_{};
  std::string description_;
  static const client::OneUser::Sentences kSentences;
  client::OneUser user_{kSentences};
};

}  // namespace rkv
