// CrashLedger: the knowledge of clients about keys. It judges whether a server that was killed and
// started again may show what it shows.
//
// Each key is written by one thread, one write at a time, so the order of its writes is known. A
// kill leaves of each key the state after some write of it:
//
//  LEDGER-1  the value is one that was written to this key, whole, and was not refused; with the
//      version that its write was answered;
//  LEDGER-2  not older than the last write that was acknowledged as `wal` or `sync` (a kill spares
//      what the operating system has), nor than any version that a GET reported so durable;
//  LEDGER-3  all keys together are a prefix of the commit order: where a write has survived, no
//      write with a lower version is missing;
//  LEDGER-5  what the last restart did not show, when all who had written before it had ended,
//      never comes back: a write that its caller has given up is not begun afterwards;
//  LEDGER-4  versions never go back: a write's version is above all that its key had before, lost
//      or not.
//
// Thread safety: begin and end of one key by one thread; told_durable() from any thread; the rest
// by one thread while no other is at work.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rkv/durability.h"

namespace rkv::testing_support {

class CrashLedger {
 public:
  enum class Outcome : std::uint8_t { kOpen, kDone, kRefused, kUnknown };
  // The state of a key after a restart.
  struct Shown {
    std::optional<std::string> value;  // nothing: missing
    std::uint64_t version = 0;
  };

  explicit CrashLedger(std::size_t keys);

  // A write begins; the value to put, at least `length` bytes. `length` 0: a removal.
  std::string begin(std::size_t key, std::size_t length, Durability asked);
  void end(std::size_t key, Outcome outcome, std::uint64_t version = 0);
  // A GET returned this and said that it is at least in the write-ahead log.
  void told_durable(std::size_t key, std::string_view value, std::uint64_t version);

  // One sentence for each rule broken since the last check; `boot` is the killed server's.
  std::vector<std::string> check(const std::vector<Shown>& shown, std::uint32_t boot);
  // The next writes come after this state.
  void go_on_from(const std::vector<Shown>& shown);

 private:
  struct Write {
    std::uint64_t number = 0;
    std::size_t length = 0;  // 0: a removal
    Durability asked = Durability::kMemory;
    Outcome outcome = Outcome::kOpen;
    std::uint64_t version = 0;  // 0: not known
  };
  struct Key {
    std::vector<Write> writes;  // the first is what the last restart showed
    std::vector<Write> before;  // those that the restart did not show
    std::uint64_t last_number = 0;
    std::uint64_t highest_version = 0;
  };
  struct Claim {  // of a GET: this write of this key is durable
    std::size_t key = 0;
    std::uint64_t number = 0;
    std::uint64_t version = 0;
  };

  static std::string value_of(std::size_t key, const Write& write);
  // Which of a key's writes made what is shown; nothing, with the sentence added, when none did.
  std::optional<std::size_t> state_of(std::size_t key, const Shown& shown);
  std::optional<std::size_t> value_state(std::size_t key, const Shown& shown);
  std::optional<std::size_t> missing_state(std::size_t key);
  void check_prefix(const std::vector<std::optional<std::size_t>>& states,
                    const std::vector<Shown>& shown, std::uint32_t boot);
  std::size_t floor_of(std::size_t key);
  std::string describe_before(std::size_t key, std::uint64_t number) const;
  void broken(std::size_t key, const std::string& sentence);

  std::vector<Key> keys_;
  std::mutex mutex_;  // of what stands below
  std::vector<Claim> claims_;
  std::vector<std::string> broken_;
};

// The same for a counter that one thread adds 1 to.
class CounterLedger {
 public:
  void begin() { ++open_; }
  void done(std::int64_t number, Durability level);
  void refused() { --open_; }
  // Whether a restarted server may show this number.
  bool allows(std::int64_t number) const { return number >= floor_ && number <= last_ + open_; }
  void go_on_from(std::int64_t number) {
    floor_ = last_ = number;
    open_ = 0;
  }
  std::string describe() const;

 private:
  std::int64_t floor_ = 0;  // reported to be durable
  std::int64_t last_ = 0;   // told
  std::int64_t open_ = 0;   // additions since that may have happened
};

}  // namespace rkv::testing_support
