// The parameters of a simulated run, drawn from its seed: sizes, speeds and kinds of faults. Each
// run has some kinds of faults and lacks others, so that no fault hides the effect of another.
//
// Thread safety: values.
#pragma once

#include <cstdint>
#include <vector>

#include "rkv/options.h"
#include "tests/sim/disk.h"
#include "tests/sim/network/fabric.h"
#include "tests/sim/server_process.h"

namespace rkv::sim {

// A fault that no design survives, to prove that the model notices.
enum class Canary : std::uint8_t {
  kNone,
  kForgedRecords,  // torn records arrive with a fitting checksum
  kStaleReads,     // READs are answered with the bytes of an earlier READ
  kLyingDisk,      // syncs that persist nothing
  kStaleDisk,      // reads of the disk return the record before the last
  kHidingDisk,     // reads of many records leave some out: warm-up, scans
  kMixedValues,    // the disk stores large values with their bytes reordered
  kDroppingDisk,   // a full disk drops writes and reports success
  kFullForGood,    // the server never learns that the disk has space again
  kNoExpiry,       // expired keys are not removed
  kHastyClock,     // a wall clock that is ahead for a moment is believed at once
  kDeafClock,      // a wall clock that stays ahead is never believed
  kNoSweep,        // a flush does not take the counts in cells to the log
  kBlindSeal,      // a counter leaves its cell with a number read before the seal
  kForgetful,      // the outcomes of a session are handed to nobody
  kAppliesAgain,   // an applied write whose answer was lost is applied again
  kWrongLane,      // a client that asks is answered with the outcome of another lane
};

struct Plan {
  std::size_t clients = 2;
  std::size_t operations = 40;  // per client
  std::size_t hot_keys = 4;
  std::size_t fillers = 0;  // other keys, present from the start
  std::size_t filler_bytes = 20;
  std::size_t counters = 0;     // keys that are counters
  std::size_t cell_keys = 0;    // keys of one-sided counters, changed by atomics and requests
  std::uint64_t brief_in = 0;   // one in this many puts has a time to live
  std::size_t fillings = 0;     // times that the disk is full
  Nanos full_for = 0;           // maximum time for each
  std::size_t clock_steps = 0;  // steps of the wall clock while clients work
  bool clock_stands = false;    // afterwards the wall clock is set ahead for good
  bool scans = false;
  Nanos think = 0;           // maximum pause between two operations
  std::uint64_t nap_in = 0;  // one in this many operations follows a sleep that is long enough for
                             // freed blocks to be reused
  bool two_lengths = false;  // values have one of two lengths, so keys exchange blocks
  Nanos store_step = 0;      // maximum time between two stores of a publication
  std::uint64_t pause_in = 0;  // after one in this many stores the server pauses
  Nanos pause = 0;             // maximum pause: whole GETs may happen in it
  std::uint64_t long_in = 0;   // one in this many values is longer than a small READ
  std::uint64_t huge_in = 0;   // one in this many about fills a message, so that the log fills up
  std::uint64_t large_in = 0;  // one in this many is longer: the server READs it from its client
  std::size_t restarts = 0;
  Nanos expiry_late = 0;  // how long a key may outlive its time to live
  Nanos to_log = 0;       // additions older than this survive a process crash; 0: unknown
  bool may_fail = false;  // something in the plan justifies failing operations
  rdma::sim::Faults network{};
  rdma::sim::Scheduler::Pace pace{};
  DiskFaults disk{};
  ServerOptions server{};
  std::vector<ClientOptions> client_options;

  static Plan draw(Random& random, Canary canary);
};

}  // namespace rkv::sim
