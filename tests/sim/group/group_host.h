// GroupHost: one replica of a simulated group. The product's Membership, Backup and Primary, on a
// clock that drifts, with an engine and a memory that clients READ also while the process is
// paused.
//
// A key is enough: each entry is a write of it, and knows how many came before it in its log.
//
// Thread safety: none.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/group/rules/membership.h"
#include "server/group/rules/succession.h"
#include "tests/sim/etcd.h"
#include "tests/sim/group/group_plan.h"
#include "tests/sim/network/scheduler.h"

namespace rkv::sim {

struct Write {
  std::uint64_t ordinal = 0;  // how many writes the log holds up to this one
  std::uint64_t id = 0;       // of the client's write
  friend bool operator==(const Write&, const Write&) = default;
};

// A message that arrives at a host.
struct Arrival {
  std::uint64_t link = 0;  // the connection's number
  std::optional<server::Hello> hello{};
  std::optional<server::Entries> entries{};
  std::optional<server::Answer> answer{};
  std::optional<server::HandOver> hand_over{};
  std::optional<bool> is_reachable{};  // the other end, which was called
  std::uint64_t time_began_with = 0;   // as GroupHost::time_began_with(); of entries
  bool is_end = false;                 // of the connection
};

class GroupHost {
 public:
  // The functions that a host needs from the run.
  struct Outside {
    // Connects to the host of that name; returns the connection's number.
    std::function<std::uint64_t(std::size_t from, const std::string& to)> connect;
    std::function<void(std::size_t from, std::uint64_t link, Arrival)> send;
    std::function<void(std::uint64_t link)> close;
    // Calls the end that has connected, until it is reached.
    std::function<void(std::uint64_t link)> call_back;
    std::function<void(std::size_t host)> ended;  // its process
    // The engine of the host at the other end is replaced by this one's.
    std::function<void(std::size_t from, std::uint64_t link)> copy_engine;
  };
  GroupHost(std::size_t number, rdma::sim::Scheduler& scheduler, Etcd& etcd, const GroupPlan& plan,
            Outside outside);

  // ---- faults
  void start();  // a new process, from the engine
  void kill();   // what is not in the write-ahead log is lost
  void pause(Nanos until) { paused_until_ = std::max(paused_until_, until); }
  Nanos paused_until() const { return paused_until_; }  // the last time; 0: never
  // Its wall clock is wrong by so much until then, or until the process ends.
  void shift_wall(std::int64_t by_ms, Nanos until) {
    wall_shifted_ms_ = by_ms;
    wall_shifted_until_ = until;
  }
  void mend_disk();  // from now on it never sticks
  void replace_engine(const GroupHost& other);
  void hand_over();  // a person asks for it; of a primary
  bool lives() const { return membership_ != nullptr; }
  bool is_paused() const { return paused_until_ > scheduler_.now(); }

  // ---- the process; the fibers of the run call these
  void step();           // receives, decides, sends
  void wait_for_work();  // blocks, for as long as a replicator's turn may be away
  void step_of_etcd();   // blocks
  void arrive(Arrival arrival) {
    inbox_.push_back(std::move(arrival));
    scheduler_.notify(work_);
  }

  // ---- clients
  // Begins a write; returns its version; nothing: the host serves no writes.
  std::optional<std::uint64_t> write(std::uint64_t id);
  // Whether the write is answered: it is replicated, and in write-ahead logs.
  bool has_answered(std::uint64_t version, std::uint64_t epoch) const;
  // An administrator revokes a secret; false: the host serves nobody.
  bool revoke(const RevokedSecret& secret);
  // Whether the administrator is answered.
  bool has_answered(const RevokedSecret& secret, std::uint64_t epoch) const;
  // The version up to which it answers them; 0: it serves no writes.
  std::uint64_t answers_up_to() const { return serves() && !is_paused() ? shown_mark_ : 0; }
  // The result of a READ. The process lives, paused or not, and has clients.
  struct Seen {
    Write newest;
    bool covers = false;  // a GET that began at `began`
  };
  std::optional<Seen> read(Nanos began) const;

  // The time by which a serving process judges expiry, and the time at which times to live begin;
  // 0: the process does not serve.
  std::uint64_t judges_by() const;
  std::uint64_t begins_by() const;
  // The epoch of the primary with whose wall clock the time of this primary has begun, as nobody
  // had told that one the time: the last replica in sync was started again. That clock may be
  // behind, or ahead of, the time before it.
  std::uint64_t time_began_with() const { return time_began_with_; }

  std::uint64_t last_ordinal() const { return image_.empty() ? 0 : image_.back().write.ordinal; }

  // Its disk does. What has none joins whatever group etcd names.
  bool belongs_to_group() const { return engine_group_ != 0; }
  bool serves() const { return lives() && admits_; }
  std::uint64_t epoch() const { return epoch_; }
  std::size_t number() const { return number_; }
  const server::Membership* membership() const { return membership_.get(); }
  Nanos local(Nanos time) const { return time + (time / 1'000'000 * drift_ppm_) + offset_; }
  std::uint64_t copies() const { return copies_; }
  std::uint64_t handed_over() const { return handed_over_; }

 private:
  struct Stored {
    server::LogPosition position;
    Write write;
  };
  void note_failure(const server::Membership::Change& change, const Error& error);
  void receive(const Arrival& arrival);
  void follow();
  void lead();
  void move_time(server::Primary& primary);
  std::int64_t wall_ms() const;
  void apply();
  void tick();
  void end();
  bool has_work() const;
  void succeed();
  Write newest_at(std::uint64_t version) const;

  const std::size_t number_;
  rdma::sim::Scheduler& scheduler_;
  const GroupPlan plan_;
  const Outside outside_;
  std::unique_ptr<server::ConfigurationStore> store_;
  std::int64_t drift_ppm_;
  Nanos offset_;
  Nanos paused_until_ = 0;
  std::int64_t wall_off_ms_;  // as set by an operator
  std::int64_t wall_shifted_ms_ = 0;
  Nanos wall_shifted_until_ = 0;

  std::vector<Stored> engine_;       // survives the process
  std::uint64_t engine_group_ = 0;   // survives it too
  std::uint64_t engine_number_ = 0;  // as do these: the newest configuration that it knew
  std::uint32_t engine_term_ = 0;
  std::size_t engine_wal_ = 0;   // how many survive the process
  std::size_t engine_sync_ = 0;  // how many are answered as synced
  Nanos sticks_until_ = 0;       // its disk
  bool is_mended_ = false;

  rdma::sim::WaitPoint work_;

  // The state of the process.
  std::uint64_t epoch_ = 0;
  std::unique_ptr<server::ReplicaLog> log_;
  std::unique_ptr<server::Membership> membership_;
  std::deque<Arrival> inbox_;
  std::optional<server::Membership::Change> change_;  // for etcd
  bool is_refused_ = false;                           // the last one was not stored
  Nanos try_storing_at_ = 0;
  std::int64_t unknown_ = -1;  // revision of one whose outcome is not known
  std::uint64_t link_ = 0;     // of a backup, to the primary
  Nanos connect_again_at_ = 0;
  std::vector<std::uint64_t> peers_;  // of a primary
  std::vector<Stored> image_;  // what the log holds, in memory; of a primary, what clients READ
  server::Succession succession_;
  std::optional<server::GroupClock> group_clock_;
  std::uint64_t time_began_with_ = 0;  // of a backup: of the time that it was told last
  bool admits_ = false;
  std::uint64_t inherited_ = 0;  // what a primary began its term with
  std::uint64_t next_version_ = 0;
  std::uint64_t replicated_ = 0;  // the mark, as the engine knows it
  std::uint64_t shown_mark_ = 0;
  Nanos tick_ = 0;  // as written to the tick line; 0: none
  std::uint64_t copies_ = 0;
  std::uint64_t handed_over_ = 0;
};

}  // namespace rkv::sim
