// Writes down what one client thread asks and is told, while it happens.
//
//   Recorder recorder(clock, 0, kThreads);                    // one for each client thread
//   const auto op = recorder.begin({.f = Function::kPut, .key = "k", .text = "v"});
//   recorder.end(op, client.put("k", "v"));
//   ...
//   check(merge(histories))
//
// A new kind of operation needs a Function, its step in model.cc, its arguments in history_json.cc,
// and an end() if its answer is of a new type.
//
// Thread safety: none; one for each thread. No lock and no system call; it allocates.
#pragma once

#include <cstddef>
#include <vector>

#include "common/clock.h"
#include "rkv/client.h"
#include "tests/history/history.h"

namespace rkv::history {

class Recorder {
 public:
  // Process numbers: first, first + stride, first + 2 * stride, ... The clock is that of all
  // recorders of a run.
  Recorder(const Clock& clock, int first, int stride);

  // A lane is one of several operations that the thread has under way at once (multi_get).
  std::size_t begin(Call call, std::size_t lane = 0);
  // `text`: what the history shall call the value read, when it is not the value itself.
  void end(std::size_t op, const Result<Value>& got);
  void end(std::size_t op, const Result<Value>& got, std::string text);
  void end(std::size_t op, const Result<std::uint64_t>& written);
  void end(std::size_t op, const Result<Counter>& counted);
  void end(std::size_t op, const Result<CounterSwap>& swapped);
  void end(std::size_t op, const Result<OneSidedCounter>& opened);
  // This may have been done as well in the course of `op`, which has ended: what a client does by
  // itself and does not tell of.
  void also_maybe(std::size_t op, Call call);

  // The thread goes on with another Client. The session of the last one ends when the server
  // notices: what it left unanswered may happen at any time.
  void client_replaced() { unsettled_.clear(); }

  const History& history() const { return history_; }
  std::size_t unanswered() const { return unanswered_; }

 private:
  Nanos stamp();
  void failed(std::size_t op, const Error& error);
  void finish(std::size_t op, Answer answer);
  void settle(const Operation& answered);

  const Clock& clock_;
  int next_process_;
  const int stride_;
  Nanos last_ = 0;  // stamps rise, so that what follows in one process follows in the file
  std::size_t unanswered_ = 0;
  std::vector<int> lanes_;              // the process that each lane is
  std::vector<std::size_t> unsettled_;  // kInfo, of this client
  History history_;
};

}  // namespace rkv::history
