#include "server/group/replica/primary_link.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "common/log.h"
#include "server/group/replica/entry_block.h"

namespace rkv::server {

namespace {

constexpr std::chrono::milliseconds kConnectLimit{1000};
// A primary sends a heartbeat ten times a second. A connection without any is half open.
constexpr Nanos kSilence = 5 * kNanosPerSecond;
constexpr Nanos kLongestCopyPause = 60 * kNanosPerSecond;

}  // namespace

PrimaryLink::PrimaryLink(const LinkSurroundings& around, Outside outside)
    : around_(around), outside_(std::move(outside)) {
  if (!around_.lanes.none()) lanes_.emplace(around_.io, around_.lanes);
}

void PrimaryLink::step(bool may_connect) {
  const Member* const primary = around_.membership.primary_member();
  Backup& backup = around_.membership.backup();
  if (connection_ != nullptr && (primary == nullptr || primary->name != name_))
    drop("another replica is the primary");
  if (connection_ != nullptr && now() - std::max(connected_at_, backup.heard_at()) > kSilence)
    drop("it says nothing");
  if (connection_ != nullptr) return answer(backup);
  if (!may_connect || primary == nullptr || is_connecting_ || copy_ != nullptr) return;
  pauses_.set_primary(*primary);
  if (pauses_.are_over(now()) && now() >= copy_again_at_) connect(*primary);
}

void PrimaryLink::answer(Backup& backup) {
  const std::uint64_t received = connection_->received_bytes();
  const bool receives = std::exchange(received_bytes_, received) != received;
  auto answer = backup.answer(now());
  if (!answer && receives) answer = backup.receives(now());
  if (answer) connection_->send(encoded(*answer));
}

void PrimaryLink::connect(const Member& primary) {
  is_connecting_ = true;
  connector_ =
      ReplicaConnector::connect(around_.io, replica_address(primary.address), around_.secret,
                                kConnectLimit, [this, primary](ReplicaConnector::Outcome made) {
                                  is_connecting_ = false;
                                  if (around_.membership.primary() != nullptr) return;
                                  if (!made) return not_connected(primary, made.error().why);
                                  begin(std::move(*made), primary);
                                });
}

// A wrong secret or version is logged once, not at each attempt. A backup in sync that cannot
// connect for the failure time takes over or is left out, so it does not pause for long. Failures
// of a moment, such as while another primary is elected, are not logged.
void PrimaryLink::not_connected(const Member& primary, const std::string& why) {
  const Member* const now_primary = around_.membership.primary_member();
  if (now_primary == nullptr || now_primary->epoch != primary.epoch) return;
  if (around_.membership.is_in_sync()) return pauses_.begin_shortest(now());
  if (pauses_.failed(why, now())) {
    log_warn(EventName("primary_unreachable"), "this replica cannot follow {}: {}",
             field("primary", primary.name), why);
  }
}

void PrimaryLink::begin(std::unique_ptr<ReplicaConnection> connection, const Member& primary) {
  connection_ = std::move(connection);
  received_bytes_ = 0;
  connected_at_ = now();
  name_ = primary.name;
  host_ = host_of(primary.address);
  connection_->start({.on_message = [this](const std::vector<std::byte>& bytes) { receive(bytes); },
                      .on_end = [this](const std::string& why) { drop(why); },
                      .on_delivered = [this] { delivered(); },
                      .on_lane_end =
                          [this](const std::string& why) {
                            log_info(EventName("primary_lane_ended"),
                                     "the log comes from {} over tcp again: {}",
                                     field("primary", name_), why);
                          }});
  connection_->send(encoded(around_.membership.backup().hello()));
}

void PrimaryLink::drop(const std::string& why) {
  if (connection_ == nullptr) return;
  const bool is_in_sync = around_.membership.is_in_sync();
  if (is_in_sync) pauses_.begin_shortest(now());
  if (is_in_sync || pauses_.ended(why, connected_at_, now())) {
    log_info(EventName("primary_left"), "the connection to {} has ended: {}",
             field("primary", name_), why);
  }
  forget_connection();
}

void PrimaryLink::forget_connection() {
  if (lanes_) lanes_->cancel();
  connection_.reset();
  received_.reset();
}

void PrimaryLink::end(const std::string& why) {
  drop(why);
  copy_.reset();
}

void PrimaryLink::close() {
  connector_.reset();
  copy_.reset();
  connection_.reset();
  lanes_.reset();
}

void PrimaryLink::receive(const std::vector<std::byte>& bytes) {
  if (outside_.has_ended() || around_.membership.primary() != nullptr) return;
  Backup& backup = around_.membership.backup();
  const auto message = decode_replication(bytes);
  if (!message) return drop(to_string(message.error()));
  if (std::holds_alternative<CopyNeeded>(*message)) return receive_copy();
  if (const HandOver* const hand_over = std::get_if<HandOver>(&*message)) {
    if (!backup.receive(*hand_over)) return drop("it cannot hand over now");
    log_info(EventName("told"), "{} hands over to this replica", field("primary", name_));
    if (!received_) received_.emplace();
    return;
  }
  if (const LaneOffer* const offer = std::get_if<LaneOffer>(&*message)) return make_lane(*offer);
  const Entries* const entries = std::get_if<Entries>(&*message);
  if (entries == nullptr || (entries->block && !is_valid_block(*entries->block)))
    return drop("it sent what a primary does not send");
  if (!backup.receive(*entries, now())) return drop("its log does not fit");
  received_ = entries->wanted;
}

// One answer for all that has come: an answer to each message of a backlog would keep this replica
// and the primary from newer messages.
void PrimaryLink::delivered() {
  if (const auto wanted = std::exchange(received_, std::nullopt)) outside_.received(*wanted);
}

// Until the lane is there, and if it cannot be made, all goes over TCP.
void PrimaryLink::make_lane(const LaneOffer& offer) {
  if (!lanes_) return;
  lanes_->call(host_, offer, [this](Result<std::unique_ptr<ReplicaLane>> made) {
    if (!made) {
      connection_->send(encoded(NoLane{}));
      // If the hosts have no transport in common, that does not change.
      const auto level =
          made.error().code == Code::kUnsupported ? LogLevel::kDebug : LogLevel::kInfo;
      return log_to(level, EventName("no_lane"), "the log comes from {} over tcp: {}",
                    field("primary", name_), to_string(made.error()));
    }
    log_info(EventName("primary_lane"), "the log comes from {} over {}", field("primary", name_),
             (*made)->over());
    connection_->use(std::move(*made), ReplicaConnection::Change::kNow);
  });
}

// The database stays as it is. The copy is put in its place when this process has ended.
void PrimaryLink::receive_copy() {
  const Member* const primary = around_.membership.primary_member();
  if (primary == nullptr) return drop("the group has no primary");
  log_info(EventName("copying"),
           "the log of {} does not lead to where this replica's ends: its database is copied",
           field("primary", primary->name));
  forget_connection();
  copy_ = std::make_unique<EngineCopyReceiver>(
      around_.io, around_.data_dir, replica_address(primary->address), around_.secret,
      CopyRequest{.replica = around_.me,
                  .group = around_.membership.group(),
                  .term = around_.membership.backup().term()},
      [this](const std::string& problem) {
        copy_.reset();
        if (!problem.empty()) {
          copy_again_at_ = now() + copy_pause_;
          copy_pause_ = std::min(2 * copy_pause_, kLongestCopyPause);
        }
        outside_.copied(problem);
      });
}

}  // namespace rkv::server
