#include "server/group/rules/membership.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace rkv::server {

namespace {

// A primary is ahead of its backups by its queue at most, which is less than this many terms of
// versions (CommitLog::kMaxCapacityBytes).
constexpr std::uint32_t kTermsAhead = 4;

template <class Made>
std::optional<GroupConfiguration> value_of(Made made) {
  if (!made) return std::nullopt;
  return *std::move(made);
}

}  // namespace

Membership::Membership(ReplicaLog& log, Replica replica, const Start& start,
                       const ReplicationTimes& times)
    : log_(log), replica_(std::move(replica)), start_(start), group_(start.group), times_(times) {}

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

Membership::Misled Membership::misled_by(const GroupConfiguration& configuration) const {
  if (group_ != 0 && group_ != configuration.group) return Misled::kByAnotherGroup;
  const std::uint64_t number = configuration_ ? configuration_->number : start_.number;
  const std::uint32_t term = configuration_ ? configuration_->term : start_.term;
  const bool is_another = configuration_ && configuration_->number == configuration.number &&
                          *configuration_ != configuration;
  const bool is_past = configuration.number < number || configuration.term < term || is_another;
  return is_past ? Misled::kByThePast : Misled::kNo;
}

void Membership::read(const ConfigurationStore::Stored& stored, Nanos asked_at, Nanos now) {
  if (role_ == Role::kEnded || (has_read_ && stored.revision < revision_)) return;
  if (!stored.configuration) {
    has_read_ = true;  // this is the first read: later results would have a lower revision
    // Founding another group here would shut out the replicas that have this group's data.
    if (group_ != 0) {
      end("etcd has no configuration of the group of this data directory: give --group the name of "
          "that group, or put its configuration back",
          false);
    }
    return;
  }
  const Misled misled = misled_by(*stored.configuration);
  if (misled != Misled::kNo && role_ == Role::kStarting) {
    return end(misled == Misled::kByAnotherGroup
                   ? "the data directory belongs to another group: give --group the name of that "
                     "one, or this replica an empty --data-dir"
                   : "etcd has an older configuration of the group than this replica has known: "
                     "put the newest one back, or give this replica an empty --data-dir",
               false);
  }
  if (misled == Misled::kNo) {
    misled_since_ = 0;
  } else if (misled_since_ == 0) {
    misled_since_ = now;
  }
  misled_ = misled;
  if (misled == Misled::kNo) take(stored, asked_at, now);
}

void Membership::take(const ConfigurationStore::Stored& stored, Nanos asked_at, Nanos now) {
  const GroupConfiguration& configuration = *stored.configuration;
  has_read_ = true;
  if (!configuration_ || stored.revision > revision_) {
    revision_ = stored.revision;
    change_.reset();  // it compared an older revision
    const bool was_in_sync = is_in_sync();
    configuration_ = configuration;
    if (role_ == Role::kStarting) begin(configuration);
    obey(was_in_sync, now);
  }
  if (primary_ != nullptr && *configuration_ == configuration) primary_->confirmed(asked_at);
}

// Applies the new configuration to this replica.
void Membership::obey(bool was_in_sync, Nanos now) {
  const GroupConfiguration& configuration = *configuration_;
  if (!is_in_sync()) {
    added_in_ = 0;
    if (role_ == Role::kLeading) return end("this process is not in sync any more");
  } else if (const std::uint64_t added = configuration.find(replica_.name)->added_in;
             !was_in_sync || added != added_in_) {
    added_in_ = added;
    joined_at_ = now;
    backup_->joined();  // before it obeys a newer term: it heard the time in the current one
  }
  if (configuration.has_primary(replica_)) return lead(configuration, was_in_sync, now);
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

void Membership::lead(const GroupConfiguration& configuration, bool was_in_sync, Nanos now) {
  if (primary_ != nullptr) return primary_->configuration_is(configuration, now);
  // A process that founded the group, or has obeyed no term, has made no promise to anybody.
  const bool is_alone = configuration.number == 1 || backup_->term() == 0;
  // No other primary existed in between: the change compared the configuration of that term.
  const bool is_told = backup_->is_told(known_term_);
  backup_->obey(configuration.term);
  role_ = Role::kLeading;
  acts_from_ = is_alone || is_told
                   ? now
                   : std::max(backup_->acts_not_before(), joined_at_ + times_.wait_of_backup());
  // This replica's name was the last one in sync, but by another process (restarted()).
  waits_for_alone_ = !was_in_sync && configuration.number != 1 &&
                     configuration.members.size() > 1 && !start_.last_has_ended &&
                     !start_.alone_without_store;
  if (waits_for_alone_) acts_from_ = std::max(acts_from_, now + times_.wait_for_alone());
  primary_ = std::make_unique<Primary>(log_, replica_, configuration,
                                       backup_->time().at(acts_from_), times_, now);
  primary_->set_alone_without_store(start_.alone_without_store);
  primary_->on_disk(backup_->wal(), backup_->sync());
}

bool Membership::may_give_up(const Change& change) const {
  return change_ && change_->revision == change.revision &&
         change_->next.number == change.next.number && primary_ != nullptr &&
         primary_->may_give_up();
}

void Membership::give_up() {
  change_.reset();
  primary_->give_up();
}

std::optional<Membership::Change> Membership::wanted(Nanos now) {
  if (backup_ != nullptr) quiet_since_ = std::max({quiet_since_, backup_->heard_at(), known_at_});
  // A gap between two calls means that the process, or the machine, stood still.
  if (const Nanos gap = now - looked_at_; looked_at_ != 0 && gap > times_.failure / 4) {
    quiet_since_ = std::min(quiet_since_ + gap, now);
    if (primary_ != nullptr) primary_->stood_still(gap, now);
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
  if (!configuration_) {
    if (start_.new_group == 0) return std::nullopt;
    return value_of(founded(start_.new_group, replica_, least_term()));
  }
  if (waits_for_alone(now)) return std::nullopt;
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
    if (start_.group != 0 || configuration_->in_sync_count() > 1)
      return value_of(restarted(*configuration_, replica_, least_term()));
    end("this replica was the last one in sync, but its data directory has no data of the group: "
        "is its file system mounted?",
        false);
    return std::nullopt;
  }
  if (!backup_->may_lead() || now < hesitates_until_) return std::nullopt;
  const bool is_awaited = !configuration_->primary.empty() && now - quiet_since_ <= times_.deposing;
  if (is_awaited && !backup_->is_told(configuration_->term)) return std::nullopt;
  return value_of(taken_over(*configuration_, replica_, least_term()));
}

}  // namespace rkv::server
