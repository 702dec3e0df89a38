#include "client/api/shared_engines.h"

#include <algorithm>
#include <atomic>

namespace rkv::client {

Result<std::unique_ptr<SharedEngines>> SharedEngines::create(
    const ClientOptions& options, std::size_t connections,
    std::shared_ptr<rdma::Transport> transport, const Clock* clock, std::string* refusal) {
  if (connections < 1 || connections > kMostConnections)
    return fail(Code::kInvalidArgument, "a shared client has 1 to 64 connections");
  std::unique_ptr<SharedEngines> made(new SharedEngines);
  ClientOptions each = options;
  each.cache_bytes /= connections;
  for (std::size_t i = 0; i < connections; ++i) {
    RKV_ASSIGN_OR_RETURN(auto engine, Engine::create(each, transport, clock, refusal));
    made->description_ = engine->description;
    auto connection = std::make_unique<Connection>();
    RKV_ASSIGN_OR_RETURN(connection->engine, AsyncEngine::create(std::move(engine)));
    made->connections_.push_back(std::move(connection));
  }
  each.cache_bytes = 0;
  each.reads_in_flight = each.requests_in_flight = 1;
  RKV_ASSIGN_OR_RETURN(const auto credentials, Credentials::of(options));
  RKV_ASSIGN_OR_RETURN(auto exclusive,
                       Engine::create_unconnected(each, credentials ? &*credentials : nullptr,
                                                  std::move(transport), clock, nullptr));
  made->exclusive_engine_ = exclusive.get();
  made->exclusive_ = std::make_unique<Client>(Client(std::move(exclusive)));
  return made;
}

// Threads are dealt out in the order of their first calls.
SharedEngines::Connection& SharedEngines::of_this_thread() {
  static std::atomic<std::size_t> threads = 0;
  thread_local const std::size_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return *connections_[number % connections_.size()];
}

void SharedEngines::note(Connection& connection, const AsyncRequest& request,
                         const Outcome& outcome) {
  if (request.kind == AsyncRequest::Kind::kGet || outcome.durability == Durability::kSync) return;
  if (request.kind == AsyncRequest::Kind::kSwap && !outcome.swapped) return;
  // A counter in a cell has no version, and no mark covers it.
  const Version version{outcome.version != 0 ? outcome.version : ~std::uint64_t{0}};
  connection.held.note(connection.engine->engine().session.map.epoch(), version);
}

bool SharedEngines::begin_exclusive(const Deadline& deadline) {
  const MutexLock lock(exclusive_mutex_);
  while (is_exclusive_taken_) {
    if (deadline.passed()) return false;
    exclusive_ends_.wait_for(exclusive_mutex_, std::chrono::milliseconds(deadline.left_ms()));
  }
  is_exclusive_taken_ = true;
  return true;
}

void SharedEngines::end_exclusive() {
  {
    const MutexLock lock(exclusive_mutex_);
    is_exclusive_taken_ = false;
  }
  exclusive_ends_.notify_one();
}

Result<std::uint64_t> SharedEngines::flush(std::chrono::milliseconds timeout) {
  std::vector<Acknowledged> held;
  for (const auto& connection : connections_)
    held.push_back(connection->held.held());
  std::uint64_t epoch = 0;
  RKV_ASSIGN_OR_RETURN(const std::uint64_t version,
                       exclusively(timeout, [&](Client& client, std::chrono::milliseconds time) {
                         auto flushed = client.flush(time);
                         epoch = exclusive_engine_->session.map.epoch();
                         return flushed;
                       }));
  bool lost = false;
  for (std::size_t i = 0; i < held.size(); ++i)
    lost = connections_[i]->held.flushed(held[i], epoch) || lost;
  if (lost) {
    return fail(Code::kStale,
                "the server has restarted: acknowledged writes that were not on disk may be lost");
  }
  return version;
}

ClientStats SharedEngines::stats() {
  ClientStats sum;
  for (const auto& connection : connections_)
    sum += connection->engine->stats();
  return sum;
}

}  // namespace rkv::client
