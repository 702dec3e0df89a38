// CellLedger: the additions to a one-sided counter with their times. It judges whether a server
// that was killed and started again may show the number that it shows.
//
// The promise (client.h): a crash loses what was added in the last tenth of a second, and while
// that was on its way to the log. How long this way is depends on the machine and what else it
// does; LogWitness measures it by going it: it sleeps for a tenth of a second, as the server does,
// then writes to the log and waits for the answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "rkv/client.h"
#include "rkv/clock.h"

namespace rkv::testing_support {

// The ledger of a counter that one thread adds 1 to. Thread safety: none.
class CellLedger {
 public:
  // An addition begins; then one of the other two, or neither when nobody knows whether it was
  // done.
  void begin() { ++open_; }
  void done(std::int64_t number, Nanos at);
  void refused() { --open_; }

  // How long before the kill the oldest addition had been answered that a server which shows
  // `number` has lost; 0: none is lost.
  Nanos lost(std::int64_t number, Nanos killed) const;
  // Whether it is a number that the counter may have had.
  bool existed(std::int64_t number) const { return number >= first_ && number <= last_ + open_; }
  // `number` includes additions since the kill, to the server that was started then. The next kill
  // may take them back like any new ones.
  void go_on_from(std::int64_t number, Nanos killed);
  std::string describe() const;

 private:
  struct Addition {
    std::int64_t number;
    Nanos at;  // answered
  };
  std::int64_t first_ = 0;
  std::int64_t last_ = 0;  // reported
  std::int64_t open_ = 0;  // additions since that may have happened
  std::vector<Addition> additions_;
};

class LogWitness {
 public:
  static constexpr Nanos kStated = 100 * kNanosPerMs;

  explicit LogWitness(Client client) : client_(std::move(client)) {}

  // The thread's body, from the start or restart of a server on; writes a key of its own.
  void run(const std::atomic<bool>& over);
  // How old a lost addition may be when the server is killed `now`. An addition waits for the sweep
  // that is under way, for the pause behind it, and for its own: twice the longest round of a
  // witness that pauses and writes, the one that is not over included.
  Nanos bound(Nanos now) const;

 private:
  Client client_;
  const SteadyClock clock_;
  mutable std::mutex mutex_;  // guards what follows
  Nanos began_ = 0;           // the present round; 0 = none yet
  Nanos longest_ = kStated;
};

}  // namespace rkv::testing_support
