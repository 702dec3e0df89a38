#include "server/group/replica/backup_links.h"

#include <utility>
#include <variant>

#include "common/log.h"

namespace rkv::server {

namespace {

// Within this time a replica that got a copy installs it and starts again.
constexpr Nanos kComesBackWithin = 30 * kNanosPerSecond;
// Within this time a backup whose connection has ended may return, and then needs the entries it
// lacked.
constexpr Nanos kConnectsAgainWithin = 3 * kNanosPerSecond;
// Limit of the bytes queued on a connection. Further blocks wait in the log.
constexpr std::size_t kMaxQueuedBytes = std::size_t{8} << 20;

}  // namespace

BackupLinks::BackupLinks(const LinkSurroundings& around, StorageEngine& engine, Outside outside)
    : around_(around),
      engine_(engine),
      outside_(std::move(outside)),
      calls_(around_,
             [this](std::uint64_t number, bool is_reachable) { called(number, is_reachable); }) {
  if (around_.lanes.none()) return;
  lanes_.emplace(around_.io, around_.lanes, host_of(around_.me.address),
                 [this](std::uint64_t number, std::unique_ptr<ReplicaLane> lane) {
                   use_lane(number, std::move(lane));
                 });
}

void BackupLinks::accept(std::unique_ptr<ReplicaConnection> connection) {
  const std::uint64_t number = next_peer_++;
  Peer& peer = peers_[number];
  peer.connection = std::move(connection);
  silent_.connected(number, now());
  peer.connection->start(
      {.on_message = [this,
                      number](const std::vector<std::byte>& bytes) { receive(number, bytes); },
       .on_end = [this, number](const std::string& why) { ended(number, why); },
       .on_sent = [this, number] { sent(number); },
       .on_delivered = [this] { delivered(); },
       .on_lane_end = [this, number](const std::string& why) { lane_ended(number, why); }});
}

// Sends blocks that wait in the log as soon as the connection has room.
void BackupLinks::sent(std::uint64_t number) {
  const auto at = peers_.find(number);
  if (at != peers_.end() && at->second.awaits_room) outside_.happened(Event::kOther);
}

void BackupLinks::called(std::uint64_t number, bool is_reachable) {
  Primary* const primary = around_.membership.primary();
  if (primary == nullptr) return;
  primary->set_reachable(number, is_reachable);
  outside_.happened(Event::kOther);
}

// The end of a connection without a Hello is logged for debugging only: so ends a primary's call
// (back_calls.h).
void BackupLinks::ended(std::uint64_t number, const std::string& why) {
  const auto at = peers_.find(number);
  const bool was_call = at != peers_.end() && !at->second.has_said_hello;
  drop(number, why, was_call ? LogLevel::kDebug : LogLevel::kInfo);
}

void BackupLinks::drop(std::uint64_t number, const std::string& why, LogLevel level) {
  const auto at = peers_.find(number);
  if (at == peers_.end()) return;
  log_to(level, EventName("replica_left"), "the connection of {} has ended: {}",
         field("replica", at->second.name.empty() ? "another replica" : at->second.name), why);
  if (at->second.has_said_hello && !at->second.is_told_of_copy)
    log_kept_until_ = std::max(log_kept_until_, now() + kConnectsAgainWithin);
  note_lane_end(at->second);
  peers_.erase(at);
  silent_.forget(number);
  calls_.forget(number);
  if (lanes_) lanes_->forget(number);
  if (Primary* const primary = around_.membership.primary()) primary->disconnected(number);
}

void BackupLinks::step() {
  for (const std::uint64_t number : silent_.take_overdue(now()))
    drop(number, "it has not said which replica it is");
  if (const Primary* const primary = around_.membership.primary()) {
    for (const std::uint64_t number : primary->unanswering(kSilence, now()))
      drop(number, "it does not answer");
    for (const std::uint64_t number : primary->failing(now()))
      leave_lane(number);
  }
  // Names come from peers, so they must not accumulate.
  std::erase_if(copied_at_,
                [this](const auto& each) { return now() >= each.second + kComesBackWithin; });
  calls_.step();
  if (lanes_) offer_lanes();
}

void BackupLinks::offer_lanes() {
  lane_pauses_.prune(now());
  for (auto& [number, peer] : peers_) {
    if (!peer.has_said_hello || peer.is_told_of_copy || peer.connection->has_lane()) continue;
    note_lane_end(peer);  // it may have ended before it was used
    if (!lane_pauses_.are_over(peer.name, now())) continue;
    const auto offer = lanes_->offer(number);
    if (!offer) return;
    lane_pauses_.offered(peer.name, now());
    peer.connection->send(encoded(*offer));
  }
}

void BackupLinks::use_lane(std::uint64_t number, std::unique_ptr<ReplicaLane> lane) {
  const auto at = peers_.find(number);
  if (at == peers_.end() || at->second.connection->has_lane()) return;
  log_info(EventName("replica_lane"), "the log goes to {} over {}",
           field("replica", at->second.name), lane->over());
  at->second.lane_since = now();
  at->second.connection->use(std::move(lane), ReplicaConnection::Change::kAfterTheOtherEnd);
}

// Drops the lane early: a fabric that carries nothing any more may report that only after the
// failure time.
void BackupLinks::leave_lane(std::uint64_t number) {
  const auto at = peers_.find(number);
  if (at == peers_.end() || at->second.lane_since == 0) return;
  at->second.connection->drop_lane();
  lane_ended(number, "it does not answer");
}

// The connection goes on over TCP, and the backup keeps its place in the group. A lane that was
// left may end once more: the backup had changed to it, and its LaneSwitch comes late.
void BackupLinks::lane_ended(std::uint64_t number, const std::string& why) {
  const auto at = peers_.find(number);
  if (at == peers_.end() || at->second.lane_since == 0) return;
  log_info(EventName("replica_lane_ended"), "the log goes to {} over tcp again: {}",
           field("replica", at->second.name), why);
  note_lane_end(at->second);
}

void BackupLinks::note_lane_end(Peer& peer) {
  if (const Nanos since = std::exchange(peer.lane_since, 0); since != 0)
    lane_pauses_.ended(peer.name, since, now());
}

void BackupLinks::receive(std::uint64_t number, const std::vector<std::byte>& bytes) {
  const auto at = peers_.find(number);
  if (at == peers_.end()) return;
  Primary* const primary = around_.membership.primary();
  if (primary == nullptr || outside_.has_ended())
    return drop(number, "this replica is not the primary");
  const auto message = decode_replication(bytes);
  if (!message) return drop(number, to_string(message.error()));
  silent_.forget(number);
  if (const Hello* const hello = std::get_if<Hello>(&*message)) {
    if (greet(number, at->second, *hello)) received_ = Event::kOther;
  } else if (const CopyRequest* const request = std::get_if<CopyRequest>(&*message)) {
    send_copy(number, *request);
  } else if (std::holds_alternative<NoLane>(*message)) {
    lane_pauses_.not_made(at->second.name, now());
  } else if (const Answer* const answer = std::get_if<Answer>(&*message);
             answer != nullptr && primary->answered(number, *answer, now())) {
    received_ = received_.value_or(Event::kAnswer);
  } else {
    drop(number, "it sent what a backup does not send");
  }
}

// Reports all answers that have come at once.
void BackupLinks::delivered() {
  if (const auto event = std::exchange(received_, std::nullopt)) outside_.happened(*event);
}

// Returns false if the connection was dropped.
bool BackupLinks::greet(std::uint64_t number, Peer& peer, const Hello& hello) {
  if (std::exchange(peer.has_said_hello, true)) {
    drop(number, "a second hello");
    return false;
  }
  peer.name = hello.replica.name;
  copied_at_.erase(peer.name);
  switch (around_.membership.primary()->connected(number, hello, now())) {
    case Primary::Admission::kAccepted:
      log_info(EventName("replica_connected"), "replica {} has connected",
               field("replica", hello.replica.name));
      calls_.begin(number, hello.replica);
      return true;
    case Primary::Admission::kRefused:
      drop(number, "it belongs to another group");
      break;
    case Primary::Admission::kDeposed:
      drop(number, "it has obeyed a later primary");
      break;
  }
  return false;
}

void BackupLinks::send() {
  Primary& primary = *around_.membership.primary();
  for (auto& [number, peer] : peers_) {
    while (peer.has_said_hello) {
      peer.awaits_room = peer.connection->queued_bytes() >= kMaxQueuedBytes;
      if (peer.awaits_room) break;
      const auto entries = primary.next(number, now());
      if (!entries) break;
      peer.connection->send(encoded(*entries));
    }
    if (primary.needs_copy(number) && !std::exchange(peer.is_told_of_copy, true))
      peer.connection->send(encoded(CopyNeeded{}));
  }
}

void BackupLinks::tell(std::uint64_t number, const HandOver& message) {
  if (const auto at = peers_.find(number); at != peers_.end())
    at->second.connection->send(encoded(message));
}

void BackupLinks::send_copy(std::uint64_t number, const CopyRequest& request) {
  if (request.group != around_.membership.group())
    return drop(number, "it belongs to another group");
  if (copies_ == nullptr) {
    copies_ = std::make_unique<EngineCopySender>(
        around_.io, around_.data_dir,
        [this](const std::string& target) { return engine_.checkpoint(target); },
        [this](const std::string& replica, const std::string& problem) {
          log_info(EventName("copy_sent"), "the copy of the database for {} is over{}{}",
                   field("replica", replica), problem.empty() ? "" : ": ", problem);
          log_kept_until_ = now() + kComesBackWithin;
          if (problem.empty()) copied_at_[replica] = now();
          outside_.copied(replica, problem);
        });
  }
  log_info(EventName("copy_begins"), "replica {} gets a copy of the database",
           field("replica", request.replica.name));
  const auto at = peers_.find(number);
  const std::shared_ptr<ReplicaConnection> connection = at->second.connection;
  peers_.erase(at);  // its callbacks no longer find the peer
  calls_.forget(number);
  if (lanes_) lanes_->forget(number);
  around_.membership.primary()->disconnected(number);
  copies_->send(connection, request);
}

bool BackupLinks::is_copying_to(const std::string& name) const {
  if (copies_ != nullptr && copies_->sends_to(name)) return true;
  const auto at = copied_at_.find(name);
  return at != copied_at_.end() && now() < at->second + kComesBackWithin;
}

bool BackupLinks::log_is_awaited() const {
  return (copies_ != nullptr && !copies_->progress().replica.empty()) || now() < log_kept_until_;
}

void BackupLinks::close() {
  copies_.reset();
  calls_.close();
  peers_.clear();
  lanes_.reset();
}

}  // namespace rkv::server
