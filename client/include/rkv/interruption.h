// Lets a thread leave the call of a SharedClient that it waits in, such as an interpreter at
// Ctrl-C.
//
//   bool asks() { return handle_signals() == kRaised; }
//   const rkv::Interruption interruption(asks);
//   auto got = client.get("name");          // asks() has returned true: kCancelled, soon after
//
// It concerns operations on keys, and no call that uses the further connection (shared_client.h).
// A write that was sent may have happened, as Error::write says.
//
// Thread safety: belongs to its thread.
#pragma once

#include <chrono>

#include "rkv/export.h"

namespace rkv {

class RKV_EXPORT Interruption {
 public:
  // How often a thread that waits asks.
  static constexpr std::chrono::milliseconds kPause{50};

  // While this lives, `asks` is called by this thread when it has waited for kPause, without locks
  // of the client. It may use the client.
  explicit Interruption(bool (*asks)());
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  static const Interruption* of_this_thread();  // null: none
  bool asks() const { return asks_(); }

 private:
  bool (*const asks_)();
  const Interruption* const before_;
};

}  // namespace rkv
