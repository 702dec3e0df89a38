// A pipelined operation on one engine, a round at a time: what several of them, each on a server of
// its own, are driven by from one thread (fan_out.h).
//
// Invariants:
//  W1  advance() never waits for requests or READs of the operation itself. What an engine does
//      blockingly in between (reading its server's map again) ends by half the time that is left,
//      so that a dead server leaves the others the other half.
//  W2  Each item is visited exactly once, whatever happens.
//
// Thread safety: as the engine.
#pragma once

#include "client/engine.h"

namespace rkv::client {

class Flow {
 public:
  Flow(Engine& engine, const Deadline& deadline) : engine_(engine), deadline_(deadline) {}
  virtual ~Flow() = default;

  Engine& engine() const { return engine_; }
  // Before the first round.
  virtual void begin() = 0;
  virtual bool over() const = 0;
  // Starts what can be started, posts it with one doorbell, takes what has come: whether anything
  // happened. REQUIRES a usable engine.
  virtual bool advance() = 0;
  // Until when to sleep, if nothing comes before; 0 = there is something to do at once. REQUIRES
  // that advance() has just done nothing.
  virtual Nanos sleep_until() const = 0;
  // The connection was lost.
  virtual void lost() = 0;
  // The connection has been made again.
  virtual void mended() = 0;
  // The connection cannot be made again: what is left ends with this error.
  virtual void fail_rest(const Error& error) = 0;
  // The deadline has passed: ends with a result for everything.
  virtual void time_out() = 0;

  // This flow is one of several.
  void share_thread() { shares_thread_ = true; }

 protected:
  // For what blocks in the middle of it.
  Deadline blocking_deadline() const {
    if (!shares_thread_) return deadline_;
    const Nanos now = engine_.clock().now();
    return {engine_.clock(), now + (deadline_.at() - now) / 2};
  }

  Engine& engine_;
  const Deadline& deadline_;

 private:
  bool shares_thread_ = false;
};

}  // namespace rkv::client
