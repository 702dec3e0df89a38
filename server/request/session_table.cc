#include "server/request/session_table.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "server/request/message_buffers.h"
#include "server/request/user_digest.h"

namespace rkv::server {

SessionTable::SessionTable(std::uint32_t capacity, rdma::Queue& queue, const Clock& clock,
                           WorkerCounters& counters, WaitUntil wait_until, OutcomeArchive* outcomes)
    : queue_(queue),
      clock_(clock),
      counters_(counters),
      wait_until_(std::move(wait_until)),
      outcomes_(outcomes),
      capacity_(capacity) {
  sessions_.reserve(capacity);
}

bool SessionTable::reserve_client() {
  // Only the acceptor reserves, so no other thread takes the place between the load and the add.
  if (clients() >= capacity_) return false;
  clients_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void SessionTable::notify_worker() {
  mail_.store(true, std::memory_order_release);
  queue_.wake();
}

void SessionTable::adopt(NewClient client) {
  {
    const MutexLock lock(mutex_);
    received_.arrivals.push_back(std::move(client));
  }
  notify_worker();
}

bool SessionTable::end_session(std::uint64_t id, const Deadline& deadline, std::string_view user) {
  MutexLock lock(mutex_);
  received_.to_end.push_back({.id = id, .user = std::string(user)});
  const std::uint64_t ticket = ++ends_asked_;
  notify_worker();
  const auto done = [&] { return ends_done_.load(std::memory_order_acquire) >= ticket; };
  if (wait_until_) {
    lock.unlock();
    wait_until_(done, deadline);
    return done();
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline.left_ms());
  while (!done() && ended_.wait_until(mutex_, end)) {
  }
  return done();
}

void SessionTable::give_up(std::uint64_t session) {
  {
    const MutexLock lock(mutex_);
    received_.given_up.push_back(session);
  }
  notify_worker();
}

void SessionTable::end_revoked(std::shared_ptr<const Users> users,
                               std::shared_ptr<Revocation> revocation) {
  {
    const MutexLock lock(mutex_);
    received_.users = std::move(users);
    if (revocation != nullptr) received_.revocations.push_back(std::move(revocation));
  }
  notify_worker();
}

bool SessionTable::is_revoked(const Session& session) const {
  return users_ != nullptr && session.user != nullptr && !users_->has(*session.user);
}

std::vector<rdma::Completion> SessionTable::collect_mail() {
  if (!mail_.exchange(false, std::memory_order_acquire)) return {};
  Mail mail;
  {
    const MutexLock lock(mutex_);
    mail = std::exchange(received_, {});
  }
  if (mail.users != nullptr) {
    users_ = std::move(mail.users);  // arrivals may belong to earlier users
    drop_revoked(mail.revocations);
  }
  for (NewClient& arrival : mail.arrivals)
    admit(std::move(arrival));
  end_old(mail.to_end);  // before the messages that they sent are served
  give_up_all(mail.given_up);
  if (!mail.to_end.empty()) {
    {
      const MutexLock lock(mutex_);
      ends_done_.fetch_add(mail.to_end.size(), std::memory_order_release);
    }
    ended_.notify_all();
  }
  return std::exchange(early_, {});
}

// REVOKE-1: a worker reports after it has ended its sessions.
void SessionTable::drop_revoked(std::span<const std::shared_ptr<Revocation>> revocations) {
  std::vector<std::uint64_t> counts(revocations.size());
  for (const auto& session : sessions_) {
    if (session->ending || !is_revoked(*session)) continue;
    for (std::size_t i = 0; i < counts.size(); ++i)
      counts[i] += revocations[i]->user() == session->user->name ? 1 : 0;
    drop(*session, DropReason::kRevoked);
  }
  for (std::size_t i = 0; i < counts.size(); ++i)
    revocations[i]->ended(counts[i]);
}

void SessionTable::admit(NewClient arrival) {
  auto session = std::make_unique<Session>();
  session->connection = std::move(arrival.connection);
  session->id = arrival.session;
  session->credits = arrival.credits;
  session->name = std::move(arrival.name);
  session->place = std::move(arrival.place);
  session->user = std::move(arrival.user);
  if (session->user != nullptr) session->role = session->user->role;
  if (outcomes_ != nullptr && session->role != Role::kRead) {
    session->outcomes = std::make_shared<Outcomes>();
    session->user_digest = user_digest(session->user.get());
  }
  session->replies.reserve(kRepliesInFlight);
  session->connection->owner = session.get();
  counters_.add(WorkerCounters::kAccepted);
  counters_.add(WorkerCounters::kGranted, session->credits);
  log_info(EventName("client_connected"), "client {} \"{}\" connected, session {}",
           field("peer", session->connection->peer()), field("name", session->name),
           field("session", session->shown_id()));
  sessions_.push_back(std::move(session));
  Session& admitted = *sessions_.back();
  // give_up() may have run before the client arrived.
  if (admitted.place != nullptr && admitted.place->is_going()) drop(admitted, DropReason::kSilent);
  if (is_revoked(admitted)) drop(admitted, DropReason::kRevoked);
}

void SessionTable::end_old(const std::vector<OldSession>& to_end) {
  if (to_end.empty()) return;
  for (const auto& session : sessions_) {
    const auto is_this = [&](const OldSession& one) { return one.is(*session); };
    if (!std::ranges::any_of(to_end, is_this)) continue;
    drop(*session, std::nullopt);
    give_away_outcomes(*session);
  }
}

// The client may have come back, or may do so. REQUIRES: session.ending (ONCE-2).
void SessionTable::give_away_outcomes(Session& session) {
  if (session.outcomes == nullptr) return;
  RKV_CHECK(session.ending, "ONCE-2");
  if (is_revoked(session)) return session.outcomes.reset();  // ONCE-5
  outcomes_->put(session.id, session.user, std::move(session.outcomes));
}

void SessionTable::give_up_all(const std::vector<std::uint64_t>& ids) {
  if (ids.empty()) return;
  for (const auto& session : sessions_)
    if (std::ranges::find(ids, session->id) != ids.end()) drop(*session, DropReason::kSilent);
}

void SessionTable::drop(Session& session, std::optional<DropReason> why) {
  if (session.ending) return;
  session.ending = true;
  if (why) {
    counters_.dropped(*why);
    if (is_offence(*why) && session.place != nullptr) session.place->offended(clock_.now());
    log_warn(EventName("client_dropped"), "client {} \"{}\" is disconnected: {}",
             field("peer", session.connection->peer()), field("name", session.name),
             field("why", sentence_of(*why)));
  }
  session.connection->abort();
}

void SessionTable::remove(Session& session) {
  give_away_outcomes(session);
  std::erase_if(sessions_, [&](const auto& owned) { return owned.get() == &session; });
  clients_.fetch_sub(1, std::memory_order_relaxed);
}

void SessionTable::destroy_connections() {
  for (const auto& session : sessions_)
    session->connection.reset();
}

}  // namespace rkv::server
