// Primary: what the primary of a term knows of its backups. It says what to send to each, which
// part of the log all of them have, and until when clients may believe this primary. It also says
// which change of the set of replicas in sync it wants.
//
// A process counts if it is in sync in the configuration, or in a change whose outcome is not
// known. A process that is awaited holds back the marks too, but not the lease: it cannot take
// over.
//
// Invariants (rules of tests/model/README.md):
//  PRIMARY-1  Marks never fall. No mark rises above what any process that counts has answered in
//      this term, nor above the primary's own log or disk.
//  PRIMARY-2  The last answer of a process grants a lease, which counts from before the answered
//      message was sent. The primary's lease is the shortest over all processes that count.
//  PRIMARY-3  A process that is to join counts from before the change is sent. A process that is to
//      leave counts until the change is known to have succeeded.
//  PRIMARY-4  A joiner has all that was inherited, all that was answered at any level, and the
//      time.
//  PRIMARY-5  All processes that count have passed the group's time, according to their answers
//      (group_time.h). It never falls, and begins above the times that earlier primaries judged by.
//  PRIMARY-6  A primary that is silent removes nobody: a backup that was not asked cannot be blamed
//      for silence.
//  PRIMARY-7  A primary that hands over covers no tick any more. It tells a backup only when its
//      clock has passed the last tick by the window, so that no call that begins later is believed.
//      It also wants no change then. After that it is silent for the rest of its term.
//  PRIMARY-8  No mark rises faster than a joiner allows (catch_up.h), nor beyond limit_log().
//      Otherwise a group whose clients never pause might never have its backup back.
//  PRIMARY-9  A backup is sent nothing more while its disk lacks kMostUnwritten of what it may
//      write. So a disk that is slower than the clients slows them down, and the backup needs no
//      more memory.
//  PRIMARY-10  If no other process counts, the store gives the lease, from before it was asked.
//      Only the store can let another process of the primary's name take its place, and that
//      process waits for the lease. The primary of a group of one member, or one with
//      set_alone_without_store(), needs no lease.
//  PRIMARY-11  A primary that hears nothing from two or more at once waits twice as long before it
//      leaves one out. Perhaps the primary is cut off, and one of them takes over.
//  PRIMARY-12  The primary wants a revoked secret stored until the configuration has it, or until
//      its term ends. While the store takes no change, the secret waits, and other changes do not
//      wait for it.
//  PRIMARY-13  A process is added to those in sync only if this replica has reached it at the
//      process's own address (set_reachable()). A process that nobody can call would, as the
//      primary, hear nobody and leave the others out. A process that is in sync stays so.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/group/rules/catch_up.h"
#include "server/group/rules/group_time.h"
#include "server/group/rules/messages.h"
#include "server/group/rules/replication_times.h"

namespace rkv::server {

class Primary {
 public:
  // At most this many messages of a connection are unanswered. Further ones wait: a backup answers
  // at once all that it has received.
  static constexpr std::size_t kMaxUnanswered = std::size_t{1} << 16;
  static constexpr std::uint64_t kMostUnwritten = std::uint64_t{64} << 20;
  // Allowed stall of the disk of a backup that has all that it was sent: a busy disk takes a second
  // for a sync.
  static constexpr Nanos kDiskPauses = 3 * kNanosPerSecond;

  // `replica` is the primary in the term of `configuration`. `least_ms`: until this primary acts,
  // no earlier one judges by a later time. The log must outlive the primary.
  Primary(ReplicaLog& log, Replica replica, GroupConfiguration configuration,
          std::uint64_t least_ms, const ReplicationTimes& times, Nanos now);

  // ---- connections of backups; `peer` is a number of the caller

  enum class Admission : std::uint8_t {
    kAccepted,
    kRefused,  // another group's
    kDeposed,  // it has obeyed a later term
  };
  Admission connected(std::uint64_t peer, const Hello& hello, Nanos now);
  void disconnected(std::uint64_t peer);
  // Whether the backup needs a copy of the engine, because this log does not continue from the end
  // of the backup's log, or no longer does. The backup gets nothing else, and connects again with
  // the copy.
  bool needs_copy(std::uint64_t peer) const;
  // The outcome of this replica's call to the backup's own address. Success holds as long as the
  // backup's connection.
  void set_reachable(std::uint64_t peer, bool is_reachable);
  // Returns what to send now, if anything. The caller must send it, and not before this call.
  std::optional<Entries> next(std::uint64_t peer, Nanos now);
  // Returns false if that cannot be an answer on this connection, which must end.
  bool answered(std::uint64_t peer, const Answer& answer, Nanos now);

  // ---- this replica

  void on_disk(std::uint64_t wal, std::uint64_t sync);
  // This replica's disk takes nothing, or it cannot serve clients. It then falls silent if a backup
  // in sync says that it could serve, so that this backup takes over. Call it in each turn:
  // may_have_successor() counts from the last turn in which this replica was fit or had a
  // successor.
  void set_unfit(bool is_unfit, Nanos now);
  // A client waits until the backups' disks have these versions.
  void want(const Wanted& wanted) {
    wanted_.wal = std::max(wanted_.wal, wanted.wal);
    wanted_.sync = std::max(wanted_.sync, wanted.sync);
  }
  // Whether etcd has answered lately. If not, nobody joins: a joiner counts although its change may
  // never be stored. If that joiner then failed, it could not be left out.
  void set_store_answers(bool answers) { store_answers_ = answers; }
  // The store, asked at `asked_at`, said that this replica is still the primary (PRIMARY-10).
  void confirmed(Nanos asked_at) { confirmed_at_ = std::max(confirmed_at_, asked_at); }
  // Whether this primary needs no lease while no other process counts (PRIMARY-10).
  void set_alone_without_store(bool alone_without_store) {
    alone_without_store_ = alone_without_store;
  }
  // The place in the log up to which clients may be answered, in bytes of all that it ever had.
  // nullopt: no limit.
  void limit_log(std::optional<std::uint64_t> bytes) { log_limit_ = bytes; }
  // The time of this replica's GroupClock, which is sent to the others. Moves time().
  void propose_time(std::uint64_t unix_ms, Nanos now);
  // Recomputes marks after entries were appended; the other calls do so by themselves.
  void update();

  // This process stood still for `time`: that time says nothing about the others, and does not
  // count. Time before it does count. Otherwise short pauses would keep a failed process in sync.
  void stood_still(Nanos time, Nanos now);

  // ---- what holds

  const Marks& marks() const { return marks_; }
  std::uint64_t inherited() const { return inherited_; }
  std::uint64_t last() const { return log_.last().version; }
  // Connections that were asked and have not answered for `limit`: the other end is gone.
  std::vector<std::uint64_t> unanswering(Nanos limit, Nanos now) const;
  // Connections whose process fails soon: perhaps its answers take a path that does not work.
  std::vector<std::uint64_t> failing(Nanos now) const {
    return unanswering(times_.failure / 4 * 3, now);
  }
  // The log is needed after this version: other replicas lack it, or have it in memory only.
  std::uint64_t needed_after() const;
  // The time by which keys expire. REQUIRES: has_settled().
  const TimeLine& time() const { return time_; }
  // All inherited entries are replicated, and a time is known: clients may be admitted once the
  // engine has those entries too.
  bool has_settled() const { return marks_.replicated >= inherited_ && has_time_; }
  // Whether another replica would take over if this one fell silent because it may not lead.
  bool has_successor() const;
  // Like has_successor(), but also true while that may still turn out. A backup's report of its
  // disk may be on its way, or the backup may have left this primary to take over.
  bool may_have_successor(Nanos now) const;
  // Nanos' highest value: this primary needs no lease.
  Nanos lease_until() const;
  // All processes that count have answered a message that was sent at this time or later. Nanos'
  // highest value: no other process counts.
  Nanos heard_since() const;
  // Makes a message due to all: a caller waits for heard_since() to pass this moment.
  void begin_round() { ++rounds_; }
  // The known facts about another replica that is in sync, connected, or both.
  struct Other {
    std::string name;
    std::string address;
    bool is_in_sync = false;
    bool is_connected = false;
    bool needs_copy = false;
    bool is_unreachable = false;  // at its address, although it is connected
    LogPosition last{};           // the end of what it has answered in this term
    Nanos heard_at = 0;           // or since when it is expected to answer
  };
  // The other replicas, those in sync first.
  std::vector<Other> others() const;
  // Whether `tick`, read from the clock before this call, may be shown. If so, it counts as shown.
  bool covers(Nanos tick);

  // ---- hand-over (succession.h has its course)

  // While set, no joiner holds the marks, and limit_log() has no effect: begun requests must be
  // answered soon.
  void set_hurries(bool hurries) { hurries_ = hurries; }
  // No tick is covered until resume_ticks(). That has no effect once a backup was told to take
  // over.
  void end_ticks() { has_ticks_ = false; }
  void resume_ticks() { has_ticks_ = !has_handed_over(); }
  // If no more ticks are covered, no call that begins at or after this time is believed.
  Nanos believed_until() const { return last_tick_ + times_.window; }
  struct Successor {
    std::uint64_t peer = 0;
    Replica replica;
    bool has_all = false;  // its log ends where this one does
  };
  // The backup of that name (empty: the one with the longest log), if it is in sync, connected,
  // well, may lead, and is not unreachable.
  std::optional<Successor> successor(std::string_view name, Nanos now) const;
  // The message that lets this backup act as the primary. nullopt: not now (PRIMARY-7).
  std::optional<HandOver> hand_over(std::uint64_t peer, Nanos now);
  bool has_handed_over() const { return handed_over_at_ != 0; }
  Nanos handed_over_at() const { return handed_over_at_; }

  // ---- the set of replicas in sync

  // Returns the next configuration, if a change is needed and none is under way. The change counts
  // from this call on. So the caller stores it, repeatedly, until configuration_is() shows a newer
  // revision.
  std::optional<GroupConfiguration> begin_change(Nanos now);
  // A newer configuration was read: the change under way is over, with or without success.
  // REQUIRES: this replica is still its primary in the same term.
  void configuration_is(const GroupConfiguration& now_stored, Nanos now);
  // Whether the change under way may be given up: it leaves out no failed process. give_up()
  // REQUIRES that the change was not stored and never will be.
  bool may_give_up() const;
  void give_up();
  const GroupConfiguration& configuration() const { return configuration_; }
  // A joiner that held the marks until now, and is still not in sync (PRIMARY-8).
  struct AwaitedInVain {
    std::string name;
    const char* why = "";  // a clause: "it took too long"
    Nanos waited = 0;
    std::uint64_t lacks_bytes = 0;       // of the log
    std::uint64_t disk_lacks_bytes = 0;  // of what all in sync have written
    Nanos round_trip = 0;                // with its disk, as measured
  };
  // Returns the last such joiner, once.
  std::optional<AwaitedInVain> take_awaited_in_vain() {
    return std::exchange(in_vain_, std::nullopt);
  }
  // Removes a member that is gone from the group, by a later begin_change(). kNotFound, kConflict,
  // kBusy: why not.
  Status remove(std::string_view name);
  // Whether a removal is under way. It is over once the replica is not a member, or is in sync
  // again.
  bool is_removing() const { return !removing_.empty(); }
  // Revokes secrets of users in the group, by a later begin_change(): once it is stored, the
  // configuration has them. kConflict: the list is full.
  Status revoke(std::span<const RevokedSecret> secrets);

 private:
  struct Process {  // by epoch
    LogPosition last{};
    std::uint64_t wal = 0;
    std::uint64_t sync = 0;
    TimeOfAnswers time{};
    bool may_lead = false;  // it has said so
    bool has_answered = false;
    Nanos lease_from = 0;   // before the sending of the last message answered
    Nanos heard_at = 0;     // or since when it is expected to answer
    Nanos advanced_at = 0;  // when it last had everything, or more than before
    Nanos written_at = 0;   // the same of its disk
    LogPosition sent{};     // the end of what was sent to it, on its newest connection
    // Time from sending what the process's disk may write until the disk has it. A longer one
    // counts at once, and decays slowly.
    Nanos round_trip = 0;
    std::uint64_t timed = 0;  // version up to which a round trip is being measured; 0: none
    Nanos timed_since = 0;
  };
  struct Sent {
    Nanos at = 0;
    std::uint64_t unix_ms = 0;
  };
  struct Connection {
    Replica replica;
    Nanos began_at = 0;
    std::uint64_t number = 0;              // of the last message
    std::uint64_t answered = 0;            // the newest number answered
    std::map<std::uint64_t, Sent> sent{};  // the messages not answered yet
    Nanos heartbeat_due = 0;
    Marks sent_marks{};
    Wanted sent_wanted{};
    std::uint64_t sent_round = 0;
    bool needs_copy = false;
    std::optional<bool> is_reachable{};  // nothing: not known yet
  };

  bool counts(std::uint64_t epoch) const;
  bool holds_any_mark(std::uint64_t epoch) const;
  void forget_processes();
  Other other(const Replica& replica, const Connection* connection) const;
  void raise_replicated(std::uint64_t version);
  bool has_passed_time(const Process& process, Nanos now) const;
  bool is_silent() const;
  bool note_silence(Nanos now);
  bool has_failed(const Process& process, Nanos now) const;
  bool may_be_cut_off(const Process& failed, Nanos now) const;
  bool is_new(std::uint64_t epoch, Nanos now) const;
  bool may_send(const Process& process) const;
  const Process* well(const Connection& connection, Nanos now) const;
  const Process* well_to_lead(const Connection& connection, Nanos now) const;
  bool may_join(const Connection& connection, Nanos now) const;
  void help_joiners(Nanos now);
  void note_in_vain(const CatchUp::InVain& wait);
  static void time(Process& process, std::uint64_t may_write, Nanos now);
  static void note_round_trip(Process& process, Nanos now);
  std::vector<CatchUp::Joiner> joiners(Nanos now) const;
  std::optional<GroupConfiguration> wanted_change(Nanos now) const;

  ReplicaLog& log_;
  const Replica replica_;
  const ReplicationTimes times_;
  GroupConfiguration configuration_;
  std::optional<GroupConfiguration> change_{};  // its outcome is not known
  Nanos change_since_ = 0;
  bool is_undecided_ = false;  // the change is, for too long
  bool store_answers_ = true;
  bool alone_without_store_ = false;
  Nanos confirmed_at_ = std::numeric_limits<Nanos>::min() / 2;
  bool hurries_ = false;
  CatchUp catch_up_;
  std::string awaited_;  // the name of the joiner that was awaited last
  std::optional<AwaitedInVain> in_vain_{};
  std::optional<std::uint64_t> log_limit_{};
  std::string removing_;                   // a member; empty: none
  std::vector<RevokedSecret> revoking_{};  // that the configuration does not have yet
  const std::uint64_t inherited_;
  Marks marks_;
  std::uint64_t own_wal_ = 0;
  std::uint64_t own_sync_ = 0;
  bool is_unfit_ = false;
  Nanos hopeful_at_ = 0;                                     // fit, or with a successor
  Nanos silent_at_ = std::numeric_limits<Nanos>::min() / 2;  // last time this primary was silent
  bool has_ticks_ = true;
  Nanos last_tick_ = std::numeric_limits<Nanos>::min() / 2;
  Nanos handed_over_at_ = 0;  // 0: nobody was told
  Wanted wanted_{};
  std::uint64_t rounds_ = 0;
  const std::uint64_t least_ms_;
  std::uint64_t proposed_ms_ = 0;
  TimeLine time_{};
  bool has_time_ = false;
  std::map<std::uint64_t, Process> processes_;  // that count, or are connected
  std::map<std::uint64_t, Connection> connections_;
};

}  // namespace rkv::server
