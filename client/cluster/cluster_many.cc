// A Cluster's operations on many keys: sorted by server, on all servers at once.
#include <array>

#include "client/cluster/fan_out.h"
#include "client/cluster/sharded_batch.h"
#include "rkv/cluster.h"

namespace rkv {

using client::FanOut;
using client::Pipeline;
using client::ShardedBatch;

// `add(server, deadline)` creates a server's flow. `fail(server)` ends the items of a server
// without a transport. The search for transports follows the other flows, in their remaining time.
template <class Add, class Fail>
void Cluster::run_flows(Timeout timeout, Add add, Fail fail) {
  const Deadline deadline = deadline_of(timeout);
  ShardedBatch& sorted = *sharded_batch_;
  const auto run = [&] {
    if (!sorted.flows.empty()) FanOut(sorted.flows, deadline).run();
    sorted.end_flows();
  };
  std::array<std::size_t, ShardMap::kMaxServers> missing_servers;
  std::size_t missing = 0;
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    if (sorted.size_of(i) == 0) continue;
    if (clients_[i] == nullptr) {
      missing_servers[missing++] = i;
    } else {
      sorted.flows.push_back(add(i, deadline));
    }
  }
  run();
  for (std::size_t done = 0; done < missing; ++done) {
    const Nanos now = clock_->now();
    const Nanos part = (deadline.at() - now) / static_cast<Nanos>(missing - done);
    if (part <= 0) {  // the other flows used all of it: no search
      client_error_ = {.code = Code::kTimeout,
                       .text = "no time was left to find a route to the server"};
      fail(missing_servers[done]);
    } else if (open_client(missing_servers[done], {*clock_, now + part}) != nullptr) {
      sorted.flows.push_back(add(missing_servers[done], deadline));
    } else {
      fail(missing_servers[done]);
    }
  }
  run();
}

void Cluster::visit_all(std::span<const std::string_view> keys, client::GetVisitor visit,
                        void* target, const GetOptions& options) {
  if (user_.is_inherited()) {
    for (std::size_t i = 0; i < keys.size(); ++i)
      visit(target, i, std::unexpected(client::kInherited));
    return;
  }
  const client::OneUser::Use use(user_);
  if (clients_.size() == 1 && clients_.front() != nullptr) {
    return clients_.front()->visit_all(keys, visit, target, options);
  }
  ShardedBatch& sorted = *sharded_batch_;
  sorted.keys.resize(keys.size());
  sorted.sort(
      map_, keys.size(), [&](std::size_t i) { return keys[i]; },
      [&](std::size_t from, std::size_t to) { sorted.keys[to] = keys[from]; });
  sorted.gets.reserve(clients_.size());
  sorted.key_feeds.clear();
  sorted.key_feeds.reserve(clients_.size());
  sorted.get_targets.assign(clients_.size(), {});
  run_flows(
      options.timeout,
      [&](std::size_t i, const Deadline& deadline) -> Pipeline* {
        auto& to = sorted.get_targets[i];
        to = {.indices = &sorted.indices[sorted.begin_of(i)], .visit = visit, .target = target};
        auto& feed = sorted.key_feeds.emplace_back(
            std::span(sorted.keys).subspan(sorted.begin_of(i), sorted.size_of(i)), options.at_least,
            to.take, &to);
        return &sorted.gets.emplace_back(*clients_[i]->engine_, feed, deadline);
      },
      [&](std::size_t i) {
        for (std::uint32_t j = sorted.begin_of(i); j < sorted.ends[i]; ++j)
          visit(target, sorted.indices[j], std::unexpected(client_error_));
      });
}

void Cluster::put_all(std::span<const KeyValue> items, client::PutVisitor visit, void* target,
                      const WriteOptions& options) {
  if (user_.is_inherited()) {
    for (std::size_t i = 0; i < items.size(); ++i)
      visit(target, i, std::unexpected(client::kInherited));
    return;
  }
  const client::OneUser::Use use(user_);
  if (clients_.size() == 1 && clients_.front() != nullptr) {
    return clients_.front()->put_all(items, visit, target, options);
  }
  ShardedBatch& sorted = *sharded_batch_;
  sorted.items.resize(items.size());
  sorted.sort(
      map_, items.size(), [&](std::size_t i) { return items[i].key; },
      [&](std::size_t from, std::size_t to) { sorted.items[to] = items[from]; });
  sorted.puts.reserve(clients_.size());
  sorted.item_feeds.clear();
  sorted.item_feeds.reserve(clients_.size());
  sorted.put_targets.assign(clients_.size(), {});
  run_flows(
      options.timeout,
      [&](std::size_t i, const Deadline& deadline) -> Pipeline* {
        auto& to = sorted.put_targets[i];
        to = {.indices = &sorted.indices[sorted.begin_of(i)], .visit = visit, .target = target};
        auto& feed = sorted.item_feeds.emplace_back(
            std::span(sorted.items).subspan(sorted.begin_of(i), sorted.size_of(i)),
            options.durability, deadline, to.take, &to);
        return &sorted.puts.emplace_back(*clients_[i]->engine_, feed, deadline);
      },
      [&](std::size_t i) {
        for (std::uint32_t j = sorted.begin_of(i); j < sorted.ends[i]; ++j)
          visit(target, sorted.indices[j], std::unexpected(client_error_));
      });
}

}  // namespace rkv
