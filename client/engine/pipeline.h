// Pipeline: many operations of one kind in flight on one engine, in rounds. A feed supplies them
// and takes their results. A blocking call has one pipeline, or several on different servers
// (FanOut). The asynchronous client has one of each kind on the same engine, as long as it lives.
//
// Invariants:
//  FLOW-1  advance() never waits for requests or READs of the operations themselves. Blocking work
//      of the engine (reading its server's map again) ends by half of the time that is left. So a
//      dead server leaves the other half to the other servers.
//  FLOW-2  Each operation that was taken from the feed is ended there exactly once, whatever
//      happens.
//  FLOW-3  An engine has at most one pipeline of each kind at a time: two would take each other's
//      events. A pipeline borrows the engine's buffers of its kind from construction to
//      destruction, and a second loan ends the process (pipeline_buffers.h).
//
// Thread safety: as the engine.
#pragma once

#include "client/engine/engine.h"

namespace rkv::client {

// Replaces the token of an operation whose result nobody awaits any more.
inline constexpr std::uint64_t kGivenUp = ~std::uint64_t{0};

class Pipeline {
 public:
  Pipeline(Engine& engine, const Deadline& deadline) : engine_(engine), deadline_(deadline) {}
  virtual ~Pipeline() = default;

  Engine& engine() const { return engine_; }
  // Prepares the pipeline, before the first round.
  virtual void begin() = 0;
  // Whether nothing is in flight, and the feed is empty.
  virtual bool over() const = 0;
  // One round: starts operations, posts them with one doorbell, and handles the events that have
  // arrived. Returns true if anything happened. REQUIRES a usable engine.
  virtual bool advance() = 0;
  // Returns the latest time to sleep until, if no event comes earlier; 0: there is work to do at
  // once. REQUIRES: advance() has just returned false.
  virtual Nanos sleep_until() const = 0;
  // The connection was lost: closes the link, and ends operations whose outcome is unknown.
  virtual void lost() = 0;
  // The connection has been restored: restarts the operations in flight that may be repeated.
  virtual void mended() = 0;
  // The connection cannot be restored: ends the remaining operations with this error.
  virtual void fail_rest(const Error& error) = 0;
  // The deadline has passed: ends every remaining operation with a result.
  virtual void time_out() = 0;

  // This pipeline is one of several on its thread.
  void share_thread() { shares_thread_ = true; }

 protected:
  // Deadline for blocking work within a round (FLOW-1).
  Deadline blocking_deadline() const {
    if (!shares_thread_) return deadline_;
    const Nanos now = engine_.session.clock.now();
    return {engine_.session.clock, now + (deadline_.at() - now) / 2};
  }

  Engine& engine_;
  const Deadline& deadline_;

 private:
  bool shares_thread_ = false;
};

}  // namespace rkv::client
