// The stores that move a publication forward, in one place, so that a test can inspect the memory
// between any two of them. In the product each call is the store and nothing else. A library built
// with RKV_STORE_STEPS calls `step_hook` after it.
#pragma once

#include <cstdint>

#include "common/bytes.h"

#ifdef RKV_STORE_STEPS
#include <functional>
#endif

namespace rkv::server {

enum class Step : std::uint8_t {
  kRecordBody,        // a word of a record's body
  kRecordPrepared,    // its checksum word: written, not live yet
  kRecordRewritten,   // its checksum word: written in place, live
  kRecordSuperseded,  // the checksum word of the replaced or deleted record
  kSlot,              // a slot of a group
  kGroupHeader,       // the header of the group: change counter, flags
  kGroupChecksum,     // the checksum of the group: it verifies again
  kRecordLive,        // the checksum word of a prepared record
  kNewGroup,          // the checksum of a new segment's group: it verifies from here on
  kDirectory,         // an entry of the directory that clients READ
  kScrubbed,          // a word of a block that is given back
};

#ifdef RKV_STORE_STEPS
inline constexpr bool kStoreSteps = true;
inline std::function<void(Step, std::uint64_t* word)> step_hook;
inline void after_step(Step step, std::uint64_t* word) {
  if (step_hook) step_hook(step, word);
}
#else
inline constexpr bool kStoreSteps = false;
constexpr void after_step(Step /*step*/, std::uint64_t* /*word*/) {}
#endif

// Release: a thread that sees this word sees every word stored before it. Readers over RDMA see
// stores in the order in which the CPU made them visible. Release fixes that order on every
// architecture.
inline void publish_word(Step step, std::uint64_t* to, std::uint64_t value) {
  store_word(to, value, std::memory_order_release);
  after_step(step, to);
}

}  // namespace rkv::server
