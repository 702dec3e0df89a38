// What the clients asked and were told, and whether a linearizable store could have told them that.
//
// Each write's value carries its number, so that a value read names the write it came from. A write
// that succeeded has a version, and versions say in which order the server committed: that claim is
// checked, not believed (it must agree with time, and with every answer).
//
// Whether the operations on a key can be put in an order is asked of the checker of recorded runs
// (tests/history); a start of a server is one of them, which brings back what the disk held.
//
// Across a restart a prefix of the commit order survives, and it contains whatever the answers to
// flushes, to durable writes and to gets of durable versions promised.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/layout.h"
#include "rkv/durability.h"
#include "rkv/result.h"
#include "tests/history/history.h"
#include "tests/sim/disk.h"

namespace rkv::sim {

struct Op {
  enum class Kind : std::uint8_t { kPut, kRemove, kGet, kFlush };
  enum class Outcome : std::uint8_t {
    kOpen,     // under way
    kDone,     // put, remove, flush: version; get: version and writer
    kMissing,  // get and remove: there was no such key
    kFailed,   // certainly changed nothing
    kUnknown,  // a write that may have happened
  };
  int client = -1;
  Kind kind = Kind::kGet;
  std::size_t key = 0;
  Nanos called = 0;
  Nanos returned = 0;
  Outcome outcome = Outcome::kOpen;
  Version version{};
  // What the answer to a write promised; what a get was told of its version.
  Durability durability = Durability::kMemory;
  std::size_t length = 0;  // of the value written
  std::size_t writer = 0;  // get: number of the put that wrote what was read
  Code error{};
};

class History {
 public:
  // What is wrong, and the operations that show it.
  struct Violation {
    std::string what;
    std::optional<std::size_t> key;
  };

  std::size_t begin(Op op);  // its number
  Op& operator[](std::size_t number) { return ops_[number]; }
  std::size_t size() const { return ops_.size(); }

  // The value that put number `number` writes.
  static std::string value_of(std::size_t number, std::size_t length);
  // A get's answer: finds its writer. False, with a violation noted, when no put wrote that.
  bool answered(std::size_t number, std::string_view value, Version version);

  // A server starts with this content, and (later) is dead.
  enum class End : std::uint8_t { kStopped, kProcess, kMachine };
  void server_starts(std::uint16_t boot, Nanos when, const Disk::Records& content,
                     const std::vector<std::string>& keys);
  void server_ends(Nanos when, End end, const Disk::Records& content,
                   const std::vector<std::string>& keys);

  void note(Violation violation) {
    if (!violation_) violation_ = std::move(violation);
  }
  // After all is over.
  const std::optional<Violation>& check(std::size_t key_count);
  // The operations on a key (or all), in the order of their calls, one a line.
  std::string tell(std::optional<std::size_t> key, const std::vector<std::string>& keys) const;

 private:
  struct Boot {
    std::uint16_t number = 0;
    Nanos started = 0;
    Nanos ended = 0;
    End end = End::kMachine;
    std::vector<std::optional<Version>> loaded;    // by key
    std::vector<std::optional<Version>> survived;  // by key
  };
  using Timeline = std::vector<std::pair<Version, std::optional<Version>>>;
  std::optional<std::size_t> writer_of(std::string_view value) const;
  std::vector<std::optional<Version>> versions_of(const Disk::Records& content,
                                                  const std::vector<std::string>& keys);
  void learn(std::size_t writer, Version version, std::size_t key);
  void bound_unknown_writes();
  void check_commit_order();
  static bool is_promised(const Op& op, End end);
  void check_survivors(const Boot& boot, std::size_t key_count);
  Timeline timeline_of(const Boot& boot, std::size_t key) const;
  bool survived(const Boot& boot, std::size_t key, const Timeline& timeline, Version end) const;
  void check_key(std::size_t key);
  const Boot* boot_of(Version version) const;
  std::string text_of(std::size_t key, Version version) const;
  history::Operation start_of(std::size_t boot, std::size_t key) const;
  std::optional<history::Operation> operation(std::size_t number) const;
  bool maybe_removed(std::size_t key, std::uint16_t boot) const;

  std::vector<Op> ops_;
  std::vector<Boot> boots_;
  std::optional<Violation> violation_;
};

}  // namespace rkv::sim
