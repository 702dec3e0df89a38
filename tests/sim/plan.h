// What happens in a simulated run, drawn from its seed: how large, how fast, and which kinds of
// faults - each run has some of them and lacks others, so that no fault hides what another shows.
//
// Thread safety: values.
#pragma once

#include <cstdint>
#include <vector>

#include "rdma/sim/fabric.h"
#include "rkv/options.h"
#include "tests/sim/disk.h"
#include "tests/sim/server_process.h"

namespace rkv::sim {

// A fault that no design survives, to see that the model would notice.
enum class Canary : std::uint8_t {
  kNone,
  kForgedRecords,  // torn records arrive with a checksum that fits
  kStaleReads,     // READs answered with what an earlier READ found there
  kLyingDisk,      // syncs that keep nothing
  kStaleDisk,      // reads of the disk that show the record before the last
  kHidingDisk,     // reads of many records that leave some out: warm-up, scans
  kMixedValues,    // the disk keeps large values with their bytes in another order
  kDroppingDisk,   // writes are dropped while the disk is full, and said to be done
  kFullForGood,    // nobody is told that there is room again
  kNoExpiry,       // nobody removes what has expired
  kHastyClock,     // a wall clock that is ahead for a moment is believed at once
  kDeafClock,      // one that stays ahead is never believed
  kNoSweep,        // a flush does not take what cells count to the log
  kBlindSeal,      // a counter leaves its cell with a number that was read before
};

struct Plan {
  std::size_t clients = 2;
  std::size_t operations = 40;  // of each client
  std::size_t hot_keys = 4;
  std::size_t fillers = 0;  // other keys, there from the start
  std::size_t filler_bytes = 20;
  std::size_t counters = 0;     // keys that count
  std::size_t cell_keys = 0;    // keys that count by atomics, and by requests beside them
  std::uint64_t brief_in = 0;   // one in so many puts has a time to live
  std::size_t fillings = 0;     // times that the disk has no room
  Nanos full_for = 0;           // each, at most
  std::size_t clock_steps = 0;  // of the wall clock while clients work
  bool clock_stands = false;    // and when they have done it is set ahead for good
  bool scans = false;
  Nanos think = 0;             // between two operations, at most
  std::uint64_t nap_in = 0;    // before one in so many operations a client sleeps long enough for
                               // freed blocks to be used again
  bool two_lengths = false;    // values of two lengths only: blocks go to and fro between keys
  Nanos store_step = 0;        // between two stores of a publication, at most
  std::uint64_t pause_in = 0;  // after one in so many of them the server pauses, for so long at
  Nanos pause = 0;             // most: whole GETs may happen meanwhile
  std::uint64_t long_in = 0;   // one in so many values is longer than a small READ
  std::uint64_t huge_in = 0;   // and one about as long as a message holds, so that the log fills up
  std::uint64_t large_in = 0;  // and one longer: the server READs it from its client
  std::size_t restarts = 0;
  Nanos expiry_late = 0;  // how long a key may outlive its time
  Nanos to_log = 0;       // after so long a crash of the process takes no addition back; 0: unknown
  bool may_fail = false;  // whether anything here justifies an operation that fails
  rdma::sim::Faults network{};
  rdma::sim::Scheduler::Pace pace{};
  DiskFaults disk{};
  ServerOptions server{};
  std::vector<ClientOptions> client_options;

  static Plan draw(Random& random, Canary canary);
};

}  // namespace rkv::sim
