// Records the requests of one client thread and their answers as they happen.
//
//   Recorder recorder(clock, 0, kThreads);                    // one for each client thread
//   const auto op = recorder.begin({.f = Function::kPut, .key = "k", .text = "v"});
//   recorder.end(op, client.put("k", "v"));
//   ...
//   check(merge(histories))
//
// A new kind of operation needs a Function, its step in model.cc and its arguments in
// history_json.cc. It also needs an end() if its answer is of a new type.
//
// Thread safety: none; one recorder per thread. It takes no lock and makes no system call; it
// allocates.
#pragma once

#include <cstddef>
#include <vector>

#include "common/clock.h"
#include "rkv/client.h"
#include "tests/history/history.h"

namespace rkv::history {

class Recorder {
 public:
  // The client's behaviour after an operation without an answer. An asynchronous client keeps the
  // connection, so it is not known when the operation can no longer happen.
  enum class Session : std::uint8_t { kEnds, kStays };
  // Process numbers: first, first + stride, first + 2 * stride, ... All recorders of a run share
  // one clock.
  Recorder(const Clock& clock, int first, int stride, Session session = Session::kEnds);

  // A lane is one of several operations that the thread has under way at a time (multi_get).
  std::size_t begin(Call call, std::size_t lane = 0);
  // `text`: the history's name for the value read, if it is not the value itself.
  void end(std::size_t op, const Result<Value>& got);
  void end(std::size_t op, const Result<Value>& got, std::string text);
  void end(std::size_t op, const Result<std::uint64_t>& written);
  void end(std::size_t op, const Result<Counter>& counted);
  void end(std::size_t op, const Result<CounterSwap>& swapped);
  void end(std::size_t op, const Result<OneSidedCounter>& opened);
  // The call may also have been done during `op`, which has ended: an action that the client takes
  // by itself and does not report.
  void also_maybe(std::size_t op, Call call);

  // The thread continues with another Client. The last client's session ends when the server
  // notices: its operations without an answer may happen at any time.
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
  const Session session_;
  Nanos last_ = 0;  // time stamps rise, so the order within a process is the order in the file
  std::size_t unanswered_ = 0;
  std::vector<int> lanes_;              // the process of each lane
  std::vector<std::size_t> unsettled_;  // this client's operations with kInfo
  History history_;
};

}  // namespace rkv::history
