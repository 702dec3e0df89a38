// Primary: what the primary of a term knows of its backups. It says what to send to each, up to
// which entry all of them have the log, until when its clients may believe it, and which change of
// the set of replicas in sync it wants.
//
// A process counts if it is in sync, or may be: in the configuration, or in a change whose outcome
// is not known. A process that is awaited holds the marks too, but no lease: it cannot take over.
//
// Invariants (rules of tests/model/README.md):
//  PRIMARY-1  Marks never fall. No mark rises above what any process that counts has answered in
//      this term, nor above the primary's own log or disk.
//  PRIMARY-2  The lease is counted from before the message was sent that the last answer is to; it
//      is the least over all processes that count. Alone, the primary needs none.
//  PRIMARY-3  A process that is to join counts from before the change is sent. One that is to leave
//      counts until the change is known to have succeeded.
//  PRIMARY-4  A joiner has what was inherited, what was answered at any level, and the time.
//  PRIMARY-5  The group's time is one that all have answered; it never falls.
//  PRIMARY-6  A primary that is silent removes nobody: who is not asked does not answer.
//  PRIMARY-7  A primary that hands over covers no tick any more. It tells a backup only when its
//      clock has passed the last tick by the window, so that no call is believed that begins later,
//      and when it wants no change. From then on it is silent for the rest of its term.
//  PRIMARY-8  No mark rises faster than a joiner lets it (catch_up.h), nor beyond what limit_log()
//      allows. Else a group whose clients never pause might never have its backup back.
//  PRIMARY-9  A backup whose disk lacks kMostUnwritten of what it may write is sent nothing more.
//      So a disk that is slower than the clients slows them down, and needs no more memory.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/replication/catch_up.h"
#include "server/replication/messages.h"
#include "server/replication/replication_times.h"

namespace rkv::server {

class Primary {
 public:
  // Of messages on a connection that are not answered. Further ones wait: a backup answers all that
  // it has received at once.
  static constexpr std::size_t kMaxUnanswered = std::size_t{1} << 16;
  static constexpr std::uint64_t kMostUnwritten = std::uint64_t{64} << 20;
  // A backup that has all that it was sent may take so long until its disk goes on: a busy one
  // takes a second for a sync.
  static constexpr Nanos kDiskPauses = 3 * kNanosPerSecond;

  // In the term of `configuration`, whose primary is `replica`. `unix_ms`: the highest time that it
  // has received. The log must outlive the primary.
  Primary(ReplicaLog& log, Replica replica, GroupConfiguration configuration, std::uint64_t unix_ms,
          const ReplicationTimes& times, Nanos now);

  // ---- connections of backups; `peer` is a number of the caller

  enum class Admission : std::uint8_t {
    kAccepted,
    kRefused,  // another group's
    kDeposed,  // it has obeyed a later term
  };
  Admission connected(std::uint64_t peer, const Hello& hello, Nanos now);
  void disconnected(std::uint64_t peer);
  // Whether the backup needs a copy of the engine: this log does not lead to where its log ends, or
  // not any more. It gets nothing else, and connects again with the copy.
  bool needs_copy(std::uint64_t peer) const;
  // What to send now, or nothing. It must be sent, and not before this call.
  std::optional<Entries> next(std::uint64_t peer, Nanos now);
  // False: that cannot be an answer of this connection, which must end.
  bool answered(std::uint64_t peer, const Answer& answer, Nanos now);

  // ---- this replica

  void on_disk(std::uint64_t wal, std::uint64_t sync);
  // A disk that takes nothing, while others are in sync: silent, so that one of them takes over.
  void set_disk_stuck(bool is_stuck) { is_disk_stuck_ = is_stuck; }
  // A client waits until the backups' disks have it.
  void want(const Wanted& wanted) {
    wanted_.wal = std::max(wanted_.wal, wanted.wal);
    wanted_.sync = std::max(wanted_.sync, wanted.sync);
  }
  // Whether etcd has answered lately. If not, nobody joins: a joiner counts although its change may
  // never be stored, and if it failed then, it could not be left out.
  void set_store_answers(bool answers) { store_answers_ = answers; }
  // Up to which place in the log clients may be answered, in bytes of all that it ever had;
  // nothing: as they like.
  void limit_log(std::optional<std::uint64_t> bytes) { log_limit_ = bytes; }
  void propose_time(std::uint64_t unix_ms) { proposed_ms_ = std::max(proposed_ms_, unix_ms); }
  // Recomputes marks after entries were appended; the other calls do so by themselves.
  void update();

  // This process stood still: what it did not hear meanwhile says nothing about the others.
  void resumed(Nanos now);

  // ---- what holds

  const Marks& marks() const { return marks_; }
  std::uint64_t inherited() const { return inherited_; }
  std::uint64_t last() const { return log_.last().version; }
  // Connections that have said nothing for `limit`, although they were asked: the other end is
  // gone.
  std::vector<std::uint64_t> unanswering(Nanos limit, Nanos now) const;
  // The log is needed from this version on: others lack it, or have it in memory only.
  std::uint64_t needed_after() const;
  // 0: not all have answered a time yet.
  std::uint64_t unix_ms() const { return unix_ms_; }
  // All that was inherited is replicated, and a time is known: clients may be admitted once the
  // engine has it too.
  bool has_settled() const {
    return marks_.replicated >= inherited_ && unix_ms_ >= proposed_first_;
  }
  // Nanos' highest value: alone.
  Nanos lease_until() const;
  // All that count have answered a message that was sent at this time or later; Nanos' highest
  // value: alone.
  Nanos heard_since() const;
  // A message is due to all: somebody waits for heard_since() to pass this moment.
  void begin_round() { ++rounds_; }
  // What is known of another replica, which is in sync or connected, or both.
  struct Other {
    std::string name;
    std::string address;
    bool is_in_sync = false;
    bool is_connected = false;
    bool needs_copy = false;
    LogPosition last{};  // the end of what it has answered in this term
    Nanos heard_at = 0;  // or since when it is expected to answer
  };
  // Those in sync first.
  std::vector<Other> others() const;
  // Whether a tick that was read from the clock as `tick` before this call may be shown. If so, it
  // is taken for shown.
  bool covers(Nanos tick);

  // ---- hand-over (succession.h has its course)

  // No joiner holds the marks, and limit_log() has no effect: what was begun is to be answered
  // soon.
  void set_hurries(bool hurries) { hurries_ = hurries; }
  // No tick is covered until resume_ticks(), which has no effect once a backup was told.
  void end_ticks() { has_ticks_ = false; }
  void resume_ticks() { has_ticks_ = !has_handed_over(); }
  // From this time on no call that begins is believed, if no tick is covered any more.
  Nanos believed_until() const { return last_tick_ + times_.window; }
  struct Successor {
    std::uint64_t peer = 0;
    Replica replica;
    bool has_all = false;  // its log ends where this one does
  };
  // The backup of that name (empty: the one whose log is longest), if it is in sync, connected and
  // well.
  std::optional<Successor> successor(std::string_view name, Nanos now) const;
  // What to tell this backup, which may act then. Nothing: not now (PRIMARY-7).
  std::optional<HandOver> hand_over(std::uint64_t peer, Nanos now);
  bool has_handed_over() const { return handed_over_at_ != 0; }
  Nanos handed_over_at() const { return handed_over_at_; }

  // ---- the set of replicas in sync

  // The next configuration, if a change is needed and none is under way. It counts from this call
  // on, so it must be stored, again and again until configuration_is() shows a newer revision.
  std::optional<GroupConfiguration> begin_change(Nanos now);
  // A newer configuration was read: the change under way is over, with or without success.
  // REQUIRES: this replica is still its primary in the same term.
  void configuration_is(const GroupConfiguration& now_stored, Nanos now);
  const GroupConfiguration& configuration() const { return configuration_; }
  // Takes a member that is gone out of the group, by a later begin_change(). kNotFound, kConflict,
  // kBusy: why not.
  Status remove(std::string_view name);
  // False: it is not a member any more, or it is in sync again.
  bool is_removing() const { return !removing_.empty(); }

 private:
  struct Process {  // by epoch
    LogPosition last{};
    std::uint64_t wal = 0;
    std::uint64_t sync = 0;
    std::uint64_t unix_ms = 0;
    bool has_answered = false;
    Nanos lease_from = 0;   // before the message was sent that the last answer is to
    Nanos heard_at = 0;     // or since when it is expected to answer
    Nanos advanced_at = 0;  // when it last had everything, or more than before
    LogPosition sent{};     // the end of what was sent to it, on its newest connection
  };
  struct Connection {
    Replica replica;
    Nanos began_at = 0;
    std::uint64_t number = 0;                  // of the last message
    std::uint64_t answered = 0;                // the newest number answered
    std::map<std::uint64_t, Nanos> sent_at{};  // of the messages not answered yet
    Nanos heartbeat_due = 0;
    Marks sent_marks{};
    Wanted sent_wanted{};
    std::uint64_t sent_round = 0;
    bool needs_copy = false;
  };

  bool counts(std::uint64_t epoch) const;
  bool holds_any_mark(std::uint64_t epoch) const;
  void forget_processes();
  Other other(const Replica& replica, const Connection* connection) const;
  void raise_replicated(std::uint64_t version);
  bool is_silent() const;
  bool note_silence(Nanos now);
  bool has_failed(const Process& process, Nanos now) const;
  bool is_new(std::uint64_t epoch, Nanos now) const;
  bool may_send(const Process& process) const;
  const Process* well(const Connection& connection, Nanos now) const;
  bool may_join(const Connection& connection, Nanos now) const;
  void help_joiners(Nanos now);
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
  bool hurries_ = false;
  CatchUp catch_up_;
  std::optional<std::uint64_t> log_limit_{};
  std::string removing_;  // a member; empty: none
  const std::uint64_t inherited_;
  Marks marks_;
  std::uint64_t own_wal_ = 0;
  std::uint64_t own_sync_ = 0;
  bool is_disk_stuck_ = false;
  Nanos silent_at_ = std::numeric_limits<Nanos>::min() / 2;  // nobody was asked anything then
  bool has_ticks_ = true;
  Nanos last_tick_ = std::numeric_limits<Nanos>::min() / 2;
  Nanos handed_over_at_ = 0;  // 0: nobody was told
  Wanted wanted_{};
  std::uint64_t rounds_ = 0;
  std::uint64_t proposed_first_;
  std::uint64_t proposed_ms_;
  std::uint64_t unix_ms_ = 0;
  std::map<std::uint64_t, Process> processes_;  // that count, or are connected
  std::map<std::uint64_t, Connection> connections_;
};

}  // namespace rkv::server
