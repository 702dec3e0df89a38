// A Cluster's servers: finds transports to them, connects, and sends requests to each of them.
#include "rkv/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "client/cluster/duplicate_server_check.h"
#include "client/cluster/route_backoff.h"
#include "client/cluster/sharded_batch.h"
#include "client/link/choose.h"
#include "client/link/credentials.h"
#include "client/link/servers.h"

namespace rkv {

using client::Engine;

namespace {

// Returns true for errors that may pass: the server is down, or has no free place at the moment.
bool may_pass(const Error& error) {
  const bool no_such_host = error.call != nullptr && std::strcmp(error.call, "getaddrinfo") == 0 &&
                            error.code == Code::kUnreachable && error.sys_errno == 0;
  switch (error.code) {
    case Code::kUnreachable:
      return !no_such_host;
    case Code::kTimeout:
    case Code::kDisconnected:
    case Code::kNotPrimary:
    case Code::kBusy:
      return true;
    default:
      return false;
  }
}

void tell(std::string* problem, std::string sentence) {
  if (problem != nullptr) *problem = std::move(sentence);
}

std::string cannot_reach(const ShardServer& server, const Error& error, const Client* client) {
  std::string sentence = fmt::format("cannot reach {}: {}", server.address, to_string(error));
  if (client != nullptr && !client->last_refusal().empty()) {
    sentence += fmt::format(": {}", client->last_refusal());
  }
  return sentence;
}

using Milliseconds = std::chrono::milliseconds;

const SteadyClock steady_clock;

Milliseconds left(const Deadline& deadline) {
  return Milliseconds(std::max(deadline.left_ms(), 1));
}

}  // namespace

Cluster::Cluster(const ShardMap& map, const ClientOptions& options,
                 std::shared_ptr<rdma::Transport> transport, const Clock* clock)
    : map_(map),
      options_(client::without_secret(options)),
      transport_(std::move(transport)),
      clock_(clock != nullptr ? clock : &steady_clock),
      duplicate_server_check_(std::make_unique<client::DuplicateServerCheck>()),
      route_backoff_(std::make_unique<client::RouteBackoff>(map.servers().size(), options)),
      sharded_batch_(std::make_unique<client::ShardedBatch>()) {}
Cluster::Cluster(Cluster&&) noexcept = default;
Cluster& Cluster::operator=(Cluster&& other) noexcept {
  if (this == &other) return *this;
  clients_.clear();  // before the duplicate server check, which their engines point to
  map_ = std::move(other.map_);
  options_ = std::move(other.options_);
  credentials_ = std::move(other.credentials_);
  transport_ = std::move(other.transport_);
  clock_ = other.clock_;
  duplicate_server_check_ = std::move(other.duplicate_server_check_);
  clients_ = std::move(other.clients_);
  route_backoff_ = std::move(other.route_backoff_);
  sharded_batch_ = std::move(other.sharded_batch_);
  last_ = other.last_;
  client_error_ = other.client_error_;
  description_ = std::move(other.description_);
  user_ = std::move(other.user_);
  return *this;
}
Cluster::~Cluster() = default;

const client::OneUser::Sentences Cluster::kSentences = {
    .two_threads = "rkv::Cluster is used by two threads at once: open one for each thread",
    .moved_from = "this rkv::Cluster was moved from"};

Result<Cluster> Cluster::connect(const ShardMap& map, const ClientOptions& options,
                                 std::string* problem) {
  return open(map, options, nullptr, nullptr, problem);
}

Result<Cluster> Cluster::connect(const ShardMap& map, const ClientOptions& options,
                                 std::shared_ptr<rdma::Transport> transport, const Clock* clock,
                                 std::string* problem) {
  if (transport == nullptr) return fail(Code::kInvalidArgument, "a cluster needs a transport");
  return open(map, options, std::move(transport), clock, problem);
}

Deadline Cluster::deadline_of(Timeout timeout) const {
  return Deadline::after_ms(*clock_, (timeout.count() > 0 ? timeout : options_.timeout).count());
}

Result<Cluster> Cluster::open(const ShardMap& map, const ClientOptions& options,
                              std::shared_ptr<rdma::Transport> transport, const Clock* clock,
                              std::string* problem) {
  const auto credentials = client::Credentials::of(options);
  if (!credentials) {
    tell(problem, to_string(credentials.error()));
    return std::unexpected(credentials.error());
  }
  Cluster cluster(map, options, std::move(transport), clock);
  if (*credentials) {
    cluster.credentials_ = std::make_unique<const client::Credentials>(**credentials);
  }
  cluster.clients_.resize(cluster.map_.servers().size());
  RKV_RETURN_IF_ERROR(cluster.connect_all(cluster.map_, cluster.clients_, problem));
  cluster.describe_clients();
  return cluster;
}

// Creates an unconnected client. Blocks while a transport is chosen, until the deadline at most.
Result<std::unique_ptr<Client>> Cluster::make_client(const ShardMap& map, std::size_t index,
                                                     const Deadline& deadline) {
  ClientOptions options = options_;
  // Several servers of one group, of which one at a time serves.
  const bool is_group = map.servers().size() == 1 && client::Servers::is_list(options.server);
  if (!is_group) options.server = map.servers()[index].address;
  options.cache_bytes /= map.servers().size();
  std::shared_ptr<rdma::Transport> transport = transport_;
  std::string reason;
  if (transport == nullptr) {
    RKV_ASSIGN_OR_RETURN(auto chosen, client::choose_transport(options, left(deadline)));
    transport = std::move(chosen.transport);
    reason = std::move(chosen.reason);
  }
  RKV_ASSIGN_OR_RETURN(auto engine,
                       Engine::create_unconnected(options, credentials_.get(), std::move(transport),
                                                  clock_, duplicate_server_check_.get()));
  if (!reason.empty()) engine->description = std::move(reason);
  duplicate_server_check_->watch(engine->session);
  return std::unique_ptr<Client>(new Client(std::move(engine)));
}

Status Cluster::connect_one(const ShardMap& map, std::size_t index, std::unique_ptr<Client>& client,
                            Timeout patience) {
  const Deadline deadline = deadline_of(patience);
  if (client == nullptr) {
    RKV_ASSIGN_OR_RETURN(client, make_client(map, index, deadline));
  }
  Engine& engine = *client->engine_;
  if (engine.session.usable()) return {};
  return engine.connector.connect_without_wait(deadline);
}

// Gives each server an equal part of the time that is left. Servers that are down stay unconnected.
Status Cluster::connect_all(const ShardMap& map, Clients& clients, std::string* problem) {
  const Deadline deadline = deadline_of({});
  const auto& servers = map.servers();
  std::size_t well = 0;
  Error first{};
  std::string sentence;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    const Milliseconds patience = left(deadline) / static_cast<std::int64_t>(servers.size() - i);
    const Status connected = connect_one(map, i, clients[i], std::max(patience, Milliseconds(1)));
    if (connected) {
      ++well;
      continue;
    }
    const Error& error = connected.error();
    if (may_pass(error)) {
      if (sentence.empty()) {
        first = error;
        sentence = cannot_reach(servers[i], error, clients[i].get());
      }
      continue;
    }
    const bool is_twin = error.code == Code::kInvalidArgument && clients[i] != nullptr;
    for (std::size_t j = 0; is_twin && j < servers.size(); ++j) {
      if (clients[j] == nullptr || &clients[j]->engine_->session != duplicate_server_check_->twin())
        continue;
      tell(problem, fmt::format("{} and {} in the list are the same kvserver: name it once",
                                servers[j].address, servers[i].address));
      return std::unexpected(error);
    }
    tell(problem, cannot_reach(servers[i], error, clients[i].get()));
    return std::unexpected(error);
  }
  if (well != 0) return {};
  tell(problem, servers.size() == 1
                    ? sentence
                    : fmt::format("none of the {} servers answers; {}", servers.size(), sentence));
  return std::unexpected(first);
}

Status Cluster::use(const ShardMap& map, std::string* problem) {
  if (user_.is_inherited()) return std::unexpected(client::kInherited);
  const client::OneUser::Use in_use(user_);
  const auto& servers = map.servers();
  Clients clients(servers.size());
  std::vector<std::size_t> from(servers.size(), clients_.size());
  for (std::size_t i = 0; i < servers.size(); ++i) {
    const auto same = [&](const ShardServer& old) {
      return old.address == servers[i].address && old.identity() == servers[i].identity();
    };
    const auto old = std::ranges::find_if(map_.servers(), same);
    if (old == map_.servers().end()) continue;
    from[i] = static_cast<std::size_t>(old - map_.servers().begin());
    clients[i] = std::move(clients_[from[i]]);
  }
  // New servers need not differ from servers that leave.
  for (const auto& leaving : clients_) {
    if (leaving != nullptr) duplicate_server_check_->forget(leaving->engine_->session);
  }
  const Status connected = connect_all(map, clients, problem);
  if (!connected) {
    for (const auto& leaving : clients_) {
      if (leaving != nullptr) duplicate_server_check_->watch(leaving->engine_->session);
    }
    for (std::size_t i = 0; i < servers.size(); ++i) {
      if (from[i] < clients_.size()) {
        clients_[from[i]] = std::move(clients[i]);
      } else if (clients[i] != nullptr) {
        duplicate_server_check_->forget(clients[i]->engine_->session);
      }
    }
    return connected;
  }
  map_ = map;
  clients_ = std::move(clients);
  *route_backoff_ = client::RouteBackoff(servers.size(), options_);
  last_ = 0;
  describe_clients();
  return {};
}

void Cluster::describe_clients() {
  description_.clear();
  std::string_view before;
  for (const auto& client : clients_) {
    if (client == nullptr || client->describe() == before) continue;
    before = client->describe();
    description_ += fmt::format("{}{}", description_.empty() ? "" : "; ", before);
  }
  if (clients_.size() > 1) description_ += fmt::format("; {} servers", clients_.size());
}

Client* Cluster::open_client(std::size_t index, const Deadline& deadline) {
  if (!route_backoff_->is_due(index, clock_->now())) {
    client_error_ = route_backoff_->last_error(index);
    return nullptr;
  }
  auto made = make_client(map_, index, deadline);
  if (!made) {
    client_error_ = made.error();
    route_backoff_->not_found(index, clock_->now(), client_error_);
    return nullptr;
  }
  clients_[index] = std::move(*made);
  describe_clients();
  return clients_[index].get();
}

Cluster::Hold::Hold(Client& client, Nanos at) : client_(client) {
  client_.engine_->connector.set_deadline_cap(at);
}
Cluster::Hold::~Hold() {
  client_.engine_->connector.clear_deadline_cap();
}

Result<Client*> Cluster::client_at(std::size_t index) {
  user_.check_owner();
  if (user_.is_inherited()) return std::unexpected(client::kInherited);
  Client* const client =
      clients_[index] != nullptr ? clients_[index].get() : open_client(index, deadline_of({}));
  if (client == nullptr) return std::unexpected(client_error_);
  return client;
}

// ------------------------------------------------------------------------------- the servers

std::vector<std::size_t> Cluster::all_servers() const {
  std::vector<std::size_t> all(clients_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

std::vector<Status> Cluster::ask(std::vector<std::size_t> servers, Timeout timeout, bool to_the_end,
                                 const Ask& ask) {
  if (user_.is_inherited())
    return std::vector<Status>(clients_.size(), std::unexpected(client::kInherited));
  const client::OneUser::Use in_use(user_);
  const Deadline deadline = deadline_of(timeout);
  std::ranges::stable_partition(servers, [&](std::size_t i) {
    return clients_[i] != nullptr && clients_[i]->engine_->session.usable();
  });
  std::vector<Status> results(clients_.size());
  for (std::size_t done = 0; done < servers.size(); ++done) {
    const std::size_t i = servers[done];
    const auto part = left(deadline) / static_cast<std::int64_t>(servers.size() - done);
    const Deadline until = deadline_of(std::max(part, Milliseconds(1)));
    Client* const client = clients_[i] != nullptr ? clients_[i].get() : open_client(i, until);
    results[i] =
        client != nullptr ? ask(*client, i, left(until)) : Status(std::unexpected(client_error_));
    if (results[i]) continue;
    last_ = i;
    if (!to_the_end) break;
  }
  return results;
}

template <class T, class Call>
std::vector<T> Cluster::on_each(Timeout timeout, Call call) {
  std::vector<T> results(clients_.size(), fail(Code::kInternal, nullptr));
  const auto asked =
      ask(all_servers(), timeout, true, [&](Client& one, std::size_t i, Timeout part) -> Status {
        results[i] = call(one, part);
        if (!results[i]) return std::unexpected(results[i].error());
        return {};
      });
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!asked[i]) results[i] = std::unexpected(asked[i].error());
  }
  return results;
}

std::vector<Status> Cluster::ping(Timeout timeout) {
  return ask(all_servers(), timeout, true,
             [](Client& one, std::size_t, Timeout part) { return one.ping(part); });
}

std::vector<Result<std::uint64_t>> Cluster::flush(Timeout timeout) {
  return on_each<Result<std::uint64_t>>(timeout,
                                        [](Client& one, Timeout part) { return one.flush(part); });
}

std::vector<Result<std::uint64_t>> Cluster::backup(std::string_view name, Timeout timeout) {
  return on_each<Result<std::uint64_t>>(
      timeout, [&](Client& one, Timeout part) { return one.backup(name, part); });
}

std::vector<Result<std::string>> Cluster::server_stats(Timeout timeout) {
  return on_each<Result<std::string>>(
      timeout, [](Client& one, Timeout part) { return one.server_stats(part); });
}

std::vector<Result<std::uint64_t>> Cluster::revoke_user(std::string_view name, Timeout timeout) {
  return on_each<Result<std::uint64_t>>(
      timeout, [&](Client& one, Timeout part) { return one.revoke_user(name, part); });
}

void Cluster::add_all(std::span<const CounterAddition> additions, Timeout timeout,
                      std::span<Result<Counter>> results) {
  user_.check_owner();
  std::vector<std::vector<std::size_t>> where(clients_.size());
  for (std::size_t i = 0; i < additions.size(); ++i)
    where[map_.shard_of(additions[i].counter->key())].push_back(i);
  std::vector<std::size_t> servers = all_servers();
  std::erase_if(servers, [&](std::size_t server) { return where[server].empty(); });
  const auto asked = ask(std::move(servers), timeout, true,
                         [&](Client& one, std::size_t server, Timeout part) -> Status {
                           std::vector<CounterAddition> some;
                           for (const std::size_t i : where[server])
                             some.push_back(additions[i]);
                           const auto done = one.multi_incr(some, part);
                           for (std::size_t i = 0; i < done.size(); ++i)
                             results[where[server][i]] = done[i];
                           return {};
                         });
  for (std::size_t server = 0; server < asked.size(); ++server) {
    for (const std::size_t i : where[server]) {
      if (!asked[server]) results[i] = std::unexpected(asked[server].error());
    }
  }
}

// ------------------------------------------------------------------------------ this cluster

ClientStats Cluster::stats() const {
  ClientStats sum;
  for (const auto& client : clients_) {
    if (client != nullptr) sum += client->stats();
  }
  return sum;
}

const std::string& Cluster::refusal_of(std::size_t index) const {
  user_.check_owner();
  static const std::string none;
  return clients_[index] != nullptr ? clients_[index]->last_refusal() : none;
}

}  // namespace rkv
