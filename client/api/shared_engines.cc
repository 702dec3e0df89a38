#include "client/api/shared_engines.h"

#include <algorithm>
#include <atomic>
#include <new>

namespace rkv::client {

Result<std::unique_ptr<SharedEngines>> SharedEngines::create(
    const ClientOptions& options, std::size_t connections,
    std::shared_ptr<rdma::Transport> transport, const Clock* clock, std::string* refusal) {
  if (connections < 1 || connections > kMostConnections)
    return fail(Code::kInvalidArgument, "a shared client has 1 to 64 connections");
  std::unique_ptr<SharedEngines> made(new SharedEngines);
  ClientOptions each = options;
  each.cache_bytes /= connections;
  static const SteadyClock steady;
  const Deadline deadline =
      Deadline::after_ms(clock != nullptr ? *clock : steady, options.timeout.count());
  RKV_ASSIGN_OR_RETURN(const auto credentials, Credentials::of(options));
  const auto memory = std::make_shared<UserMemory>(transport);
  const auto home = std::make_shared<Home>();
  const auto create = [&] {
    return Engine::create_unconnected(each, credentials ? &*credentials : nullptr, transport, clock,
                                      nullptr, home);
  };
  for (std::size_t i = 0; i < connections; ++i) {
    RKV_ASSIGN_OR_RETURN(auto engine, create());
    const Status connected = options.repeat_connect
                                 ? engine->connector.ensure_connected(deadline)
                                 : engine->connector.connect_without_wait(deadline);
    if (refusal != nullptr) *refusal = engine->session.refusal;
    if (!connected) return std::unexpected(connected.error());
    made->description_ = engine->description;
    auto connection = std::make_unique<Connection>();
    RKV_ASSIGN_OR_RETURN(connection->engine, AsyncEngine::create(std::move(engine), memory));
    made->connections_.push_back(std::move(connection));
  }
  each.cache_bytes = 0;
  each.reads_in_flight = each.requests_in_flight = 1;
  RKV_ASSIGN_OR_RETURN(auto exclusive, create());
  made->exclusive_engine_ = exclusive.get();
  made->exclusive_ = std::make_unique<Client>(Client(std::move(exclusive)));
  return made;
}

// Not inline: otherwise g++ 12 warns about the missing value of an error.
Result<Outcome> SharedEngines::failed(const Error& error) {
  return std::unexpected(error);
}

std::string& SharedEngines::refusal_of_this_thread() {
  thread_local std::string refusal;
  return refusal;
}

void SharedEngines::take_refusal(const Result<Outcome>& result, std::string& refusal) noexcept {
  if (result || AsyncEngine::refusal().empty()) return;
  try {
    refusal = AsyncEngine::refusal();
  } catch (const std::bad_alloc&) {
    refusal.clear();
  }
}

// Like AsyncEngine::note_refusal().
void SharedEngines::note_exclusive_failure(const Error& error) {
  std::string& refusal = refusal_of_this_thread();
  refusal.clear();
  if (error.text == to_string(error.code) && !is_answer(error.code))
    refusal = exclusive_->last_refusal();
}

// Threads are assigned to the connections in the order of their first calls.
SharedEngines::Connection& SharedEngines::of_this_thread() {
  static std::atomic<std::size_t> threads = 0;
  thread_local const std::size_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return *connections_[number % connections_.size()];
}

void SharedEngines::note(Connection& connection, const AsyncRequest& request,
                         const Outcome& outcome) {
  if (request.kind == AsyncRequest::Kind::kGet) return;
  if (request.kind == AsyncRequest::Kind::kSwap && !outcome.swapped) return;
  if (request.put.durability == Durability::kSync) return;
  const RemoteMap& map = connection.engine->engine().session.map;
  connection.held.note(map.epoch(), {outcome.version}, map.marks().sync());
}

SharedEngines::Exclusively::Exclusively(SharedEngines& engines, const Deadline& deadline)
    : engines_(engines) {
  const MutexLock lock(engines_.exclusive_mutex_);
  while (engines_.is_exclusive_taken_) {
    if (deadline.passed()) return;
    engines_.exclusive_ends_.wait_for(engines_.exclusive_mutex_,
                                      std::chrono::milliseconds(deadline.left_ms()));
  }
  has_ = engines_.is_exclusive_taken_ = true;
}

SharedEngines::Exclusively::~Exclusively() {
  if (!has_) return;
  {
    const MutexLock lock(engines_.exclusive_mutex_);
    engines_.is_exclusive_taken_ = false;
    engines_.exclusive_stats_ = engines_.exclusive_engine_->stats();
  }
  engines_.exclusive_ends_.notify_one();
}

Result<std::uint64_t> SharedEngines::flush(std::chrono::milliseconds timeout) {
  if (is_inherited()) return std::unexpected(kInherited);
  std::vector<HeldWrites::State> before;
  for (const auto& connection : connections_)
    before.push_back(connection->held.state());
  std::uint64_t epoch = 0;
  bool lost = false;
  RKV_ASSIGN_OR_RETURN(const std::uint64_t version,
                       exclusively(timeout, [&](Client& client, std::chrono::milliseconds time) {
                         auto flushed = client.flush(time);
                         // kStale concerns only this client's own writes, and it made none: repeat
                         // the flush.
                         lost = !flushed && flushed.error().code == Code::kStale;
                         if (lost) flushed = client.flush(time);
                         epoch = exclusive_engine_->session.map.epoch();
                         return flushed;
                       }));
  for (std::size_t i = 0; i < before.size(); ++i)
    lost = connections_[i]->held.flushed(before[i], epoch, {version}) || lost;
  if (lost) {
    return fail(Code::kStale,
                "the server has restarted: acknowledged writes that were not on disk may be lost");
  }
  return version;
}

Result<std::uint64_t> SharedEngines::backup(std::string_view name,
                                            std::chrono::milliseconds timeout) {
  const Deadline deadline = exclusive_engine_->connector.deadline(timeout);
  // Another name is refused below.
  if (is_backup_name(name)) RKV_RETURN_IF_ERROR(flush(left(deadline)));
  return exclusively(left(deadline), [&](Client& client, std::chrono::milliseconds time) {
    return client.backup(name, time);
  });
}

ClientStats SharedEngines::stats() {
  if (is_inherited()) return {};
  ClientStats sum;
  for (const auto& connection : connections_)
    sum += connection->engine->stats();
  const MutexLock lock(exclusive_mutex_);
  sum += exclusive_stats_;
  return sum;
}

}  // namespace rkv::client
