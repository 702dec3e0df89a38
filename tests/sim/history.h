// The requests of the clients and their answers, and the verdict: could a linearizable store have
// given these answers?
//
// Each write's value carries its number, so a value that was read names its write. A successful
// write has a version, and versions claim the server's commit order. That claim is checked: it must
// agree with time and with every answer.
//
// The checker of recorded runs (tests/history) decides whether the operations on a key can be put
// in an order. A start of a server is one of these operations: it restores what the disk held.
//
// Across a restart a prefix of the commit order survives. It contains everything that the answers
// to flushes, durable writes and gets of durable versions promised. A successful flush promises
// that no write acknowledged to its client is lost, not even by an earlier restart. The exception
// is a loss that the client was informed of since (kStale), which happens only after a restart.
//
// Keys of one-sided counters: versions do not tell their changes apart, and a crash may take back
// the latest changes. Their numbers only grow. The surviving number is one that the counter had at
// some instant since the last promise to save it. It counts as one more read, and is judged like
// all others.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/layout.h"
#include "rkv/durability.h"
#include "rkv/result.h"
#include "tests/history/history.h"
#include "tests/sim/disk.h"

namespace rkv::sim {

struct Op {
  enum class Kind : std::uint8_t { kPut, kRemove, kGet, kFlush, kAdd, kSwap, kOpen };
  // The condition of a put.
  enum class Condition : std::uint8_t { kNone, kIfAbsent, kIfVersion };
  enum class Outcome : std::uint8_t {
    kOpen,      // under way
    kDone,      // put, remove, flush: version; get: version and writer
    kMissing,   // get, remove, put on a version: the key did not exist
    kConflict,  // put: its condition did not hold; swap: the number had changed
    kFailed,    // certainly changed nothing
    kUnknown,   // a write that may have been done
    kStale,     // a flush: writes acknowledged to its client may have been lost
  };
  int client = -1;
  Kind kind = Kind::kGet;
  std::size_t key = 0;
  Nanos called = 0;
  Nanos returned = 0;
  Outcome outcome = Outcome::kOpen;
  Version version{};
  // Write: the durability that the answer promised; get: the durability reported for its version.
  Durability durability = Durability::kMemory;
  std::size_t length = 0;  // of the value written
  std::size_t writer = 0;  // get: the number of the put whose value was read, or kNoWriter
  Condition condition = Condition::kNone;
  Version expected{};          // kIfVersion
  std::int64_t ttl_ms = 0;     // put: 0 = no expiry
  bool expires = false;        // get: the value read has a time to live
  std::int64_t number = 0;     // add: the summand; swap: the new number
  std::int64_t if_number = 0;  // swap: the expected number
  std::int64_t sum = 0;        // add, swap, and get of a counter: the number in the answer
  Code error{};
};

std::string show(Version version);

class History {
 public:
  static constexpr std::size_t kNoWriter = ~std::size_t{0};

  // The broken promise, and the key whose operations show it.
  struct Violation {
    std::string what;
    std::optional<std::size_t> key;
  };

  std::size_t begin(Op op);  // returns the operation's number
  Op& operator[](std::size_t number) { return ops_[number]; }
  std::size_t size() const { return ops_.size(); }

  // The value that put `number` writes.
  static std::string value_of(std::size_t number, std::size_t length);
  // A get's answer: finds its writer. Returns false and notes a violation if no put wrote that
  // value.
  bool answered(std::size_t number, std::string_view value, Version version);

  // server_starts(): a server starts with this content. server_ends(): it ended, and this content
  // is left on the disk.
  enum class End : std::uint8_t { kStopped, kProcess, kMachine };
  void server_starts(std::uint32_t boot, Nanos when, const Disk::Records& content,
                     const std::vector<std::string>& keys);
  void server_ends(Nanos when, End end, const Disk::Records& content,
                   const std::vector<std::string>& keys);

  // The keys from `first` on are counters in cells. `to_log`: an addition older than this survives
  // the death of the process; 0: unknown.
  void count_in_cells(std::size_t first, Nanos to_log) {
    first_in_cell_ = first;
    to_log_ = to_log;
  }

  // Whether a server has ended, or started again, since then.
  bool restarted_since(Nanos when) const {
    return boots_.empty() || boots_.back().ended != history::kForever ||
           (boots_.size() > 1 && boots_.back().started >= when);
  }

  bool in_cell(std::size_t key) const { return key >= first_in_cell_; }

  // The wall clock was set ahead for good: from then on keys with a time to live may expire by it.
  void clock_is_believed(Nanos from) { clock_believed_ = from; }

  // True if the key may have been removed or may have expired.
  bool may_have_left(std::size_t key) const {
    return std::ranges::any_of(ops_, [key](const Op& op) {
      return op.key == key && (op.kind == Op::Kind::kRemove || op.ttl_ms != 0);
    });
  }

  void note(Violation violation) {
    if (!violation_) violation_ = std::move(violation);
  }
  // A get's answer that is a counter's number.
  void answered_number(std::size_t number, std::int64_t sum, Version version);
  // Call after the end of the run. `expiry_late`: how long a key may outlive its time to live.
  const std::optional<Violation>& check(std::size_t key_count, Nanos expiry_late);
  // The operations on a key (or on all keys) in the order of their calls, one per line.
  std::string tell(std::optional<std::size_t> key, const std::vector<std::string>& keys) const;

 private:
  struct OnDisk {
    Version version{};
    bool expires = false;
    std::optional<std::int64_t> number{};  // a counter's
  };
  struct Boot {
    std::uint32_t number = 0;
    Nanos started = 0;
    Nanos ended = 0;
    End end = End::kMachine;
    std::vector<std::optional<OnDisk>> loaded;    // by key
    std::vector<std::optional<OnDisk>> survived;  // by key
    Version through = {~std::uint64_t{0}};        // later versions are certainly lost
  };
  using Timeline = std::vector<std::pair<Version, std::optional<Version>>>;
  std::optional<std::size_t> writer_of(std::string_view value) const;
  std::vector<std::optional<OnDisk>> content_of(const Disk::Records& content,
                                                const std::vector<std::string>& keys);
  void learn(std::size_t writer, Version version, std::size_t key);
  void bound_unknown_writes();
  void check_commit_order();
  static bool is_promised(const Op& op, End end);
  void check_survivors(Boot& boot, std::size_t key_count);
  void check_flushes();
  Nanos alive_until(Nanos when) const;
  void check_cells(const Boot& boot, std::size_t key_count);
  Nanos counted_since(const Boot& boot) const;
  void push_survivors(std::size_t key, history::History& told) const;
  std::optional<history::Operation> cell_operation(std::size_t number) const;
  bool may_be_taken_back(const Op& change, const Op& flush) const;
  const Boot* taken_back(const Op& change, const Op& flush) const;
  bool is_told(const Op& write, const Op& flush) const;
  Timeline timeline_of(const Boot& boot, std::size_t key) const;
  bool survived(const Boot& boot, std::size_t key, const Timeline& timeline, Version end) const;
  void check_key(std::size_t key, Nanos expiry_late);
  history::Call call_of(std::size_t number) const;
  // The shortest time that a put's value lives. The clock's step ahead is longer than any life.
  std::int64_t life_ms_of(const Op& op) const {
    if (op.ttl_ms == 0 || clock_believed_ == 0) return op.ttl_ms;
    const std::int64_t until_ms = (clock_believed_ - op.called) / kNanosPerMs;
    return std::max<std::int64_t>(std::min(op.ttl_ms, until_ms), 1);
  }
  const Boot* boot_of(Version version) const;
  std::string text_of(std::size_t key, Version version) const;
  history::Operation start_of(std::size_t boot, std::size_t key) const;
  std::optional<history::Operation> operation(std::size_t number) const;
  bool maybe_removed(std::size_t key, const Boot& boot) const;
  bool maybe_counted(std::size_t key, const Boot& boot) const;

  std::vector<Op> ops_;
  std::vector<Boot> boots_;
  Nanos clock_believed_ = 0;  // 0: never
  std::size_t first_in_cell_ = ~std::size_t{0};
  Nanos to_log_ = 0;
  std::optional<Violation> violation_;
};

}  // namespace rkv::sim
