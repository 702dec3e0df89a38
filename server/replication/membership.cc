#include "server/replication/membership.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace rkv::server {

namespace {

// A primary is ahead of what its backups have received by its queue at most, which is less than
// this many terms of versions (CommitLog::kMaxCapacityBytes).
constexpr std::uint32_t kTermsAhead = 4;

template <class Made>
std::optional<GroupConfiguration> value_of(Made made) {
  if (!made) return std::nullopt;
  return *std::move(made);
}

}  // namespace

Membership::Membership(ReplicaLog& log, Replica replica, std::uint64_t group,
                       std::uint64_t new_group, const ReplicationTimes& times)
    : log_(log),
      replica_(std::move(replica)),
      group_(group),
      had_group_(group != 0),
      new_group_(new_group),
      times_(times) {}

const Member* Membership::primary_member() const {
  if (role_ != Role::kFollowing || configuration_->primary.empty()) return nullptr;
  return configuration_->find(configuration_->primary);
}

std::uint32_t Membership::least_term() const {
  const std::uint64_t least = (log_.last().version >> 32U) + kTermsAhead;
  return least <= std::numeric_limits<std::uint32_t>::max() ? static_cast<std::uint32_t>(least) : 0;
}

void Membership::end(std::string why, bool may_start_again) {
  role_ = Role::kEnded;
  may_start_again_ = may_start_again;
  why_ended_ = std::move(why);
  primary_.reset();
  change_.reset();
}

void Membership::read(const ConfigurationStore::Stored& stored, Nanos now) {
  if (role_ == Role::kEnded || (has_read_ && stored.revision <= revision_)) return;
  has_read_ = true;
  revision_ = stored.revision;
  if (!stored.configuration) {
    // Another group here would shut out the replicas that have this one's data.
    if (group_ != 0) {
      end("etcd has no configuration of the group of this data directory: give --group the name of "
          "that group, or put its configuration back",
          false);
    }
    return;
  }
  change_.reset();  // it compared an older revision
  const GroupConfiguration& configuration = *stored.configuration;
  if (group_ != 0 && group_ != configuration.group)
    return end(
        "the data directory belongs to another group: give --group the name of that one, or this "
        "replica an empty --data-dir",
        false);
  const bool was_in_sync = is_in_sync();
  configuration_ = configuration;
  if (role_ == Role::kStarting) begin(configuration);
  if (!is_in_sync()) {
    added_in_ = 0;
    if (role_ == Role::kLeading) return end("this process is not in sync any more");
  } else if (const std::uint64_t added = configuration.find(replica_.name)->added_in;
             !was_in_sync || added != added_in_) {
    added_in_ = added;
    joined_at_ = now;
  }
  if (configuration.has_primary(replica_)) return lead(configuration, now);
  if (role_ == Role::kLeading) return end("another replica is the primary");
  follow(configuration, now);
}

void Membership::begin(const GroupConfiguration& configuration) {
  group_ = configuration.group;
  role_ = Role::kFollowing;
  backup_ = std::make_unique<Backup>(log_, replica_, group_, times_);
}

void Membership::follow(const GroupConfiguration& configuration, Nanos now) {
  if (configuration.term == known_term_) return;
  known_term_ = configuration.term;
  known_at_ = now;
  backup_->obey(configuration.term);
}

void Membership::lead(const GroupConfiguration& configuration, Nanos now) {
  if (primary_ != nullptr) return primary_->configuration_is(configuration, now);
  // It was in sync before, or is the only one: then nobody holds a promise of this process.
  const bool is_alone = configuration.number == 1 || backup_->term() == 0;
  // Nobody was the primary in between: the change compared the configuration of that term.
  const bool is_told = backup_->is_told(known_term_);
  backup_->obey(configuration.term);
  role_ = Role::kLeading;
  acts_from_ = is_alone || is_told
                   ? now
                   : std::max(backup_->acts_not_before(), joined_at_ + times_.wait_of_backup());
  primary_ =
      std::make_unique<Primary>(log_, replica_, configuration, backup_->unix_ms(), times_, now);
  primary_->on_disk(backup_->wal(), backup_->sync());
}

std::optional<Membership::Change> Membership::wanted(Nanos now) {
  // A gap between two calls is a process, or a machine, that stood still.
  if (looked_at_ != 0 && now - looked_at_ > times_.failure / 4) {
    resumed_at_ = now;
    if (primary_ != nullptr) primary_->resumed(now);
  }
  looked_at_ = now;
  if (change_) return change_;
  if (role_ == Role::kEnded || !has_read_) return std::nullopt;
  if (auto next = next_configuration(now))
    change_ = {.revision = revision_, .next = *std::move(next)};
  return change_;
}

std::optional<GroupConfiguration> Membership::next_configuration(Nanos now) {
  if (primary_ == nullptr && least_term() == 0) {
    end("the log of this replica has used up all versions", false);
    return std::nullopt;
  }
  if (!configuration_) return value_of(founded(new_group_, replica_, least_term()));
  if (primary_ != nullptr && primary_->has_handed_over() &&
      now - primary_->handed_over_at() > times_.undecided) {
    end("the replica that was to be the next primary has not become it");
    return std::nullopt;
  }
  if (primary_ != nullptr) return primary_->begin_change(now);
  return next_of_follower(now);
}

std::optional<GroupConfiguration> Membership::next_of_follower(Nanos now) {
  const Member* const me = configuration_->find(replica_.name);
  if (me == nullptr || !me->in_sync()) return std::nullopt;
  if (me->epoch != replica_.epoch) {
    if (had_group_ || configuration_->in_sync_count() > 1)
      return value_of(restarted(*configuration_, replica_, least_term()));
    end("this replica was the last one in sync, but its data directory has no data of the group: "
        "is its file system mounted?",
        false);
    return std::nullopt;
  }
  if (now < hesitates_until_) return std::nullopt;
  const Nanos quiet_since = std::max({backup_->heard_at(), known_at_, resumed_at_});
  const bool is_awaited = !configuration_->primary.empty() && now - quiet_since <= times_.failure;
  if (is_awaited && !backup_->is_told(configuration_->term)) return std::nullopt;
  return value_of(taken_over(*configuration_, replica_, least_term()));
}

}  // namespace rkv::server
