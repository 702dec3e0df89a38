// One thread of a recorded run with several operations under way in an asynchronous client, which
// other threads use too. Some operations are withdrawn.
//
// Thread safety: a worker belongs to its thread; all workers share Shared and the client.
#pragma once

#include <array>
#include <map>
#include <stop_token>
#include <string>
#include <variant>

#include "rkv/async_client.h"
#include "tests/history/worker.h"

namespace rkv::history {

class AsyncWorker {
 public:
  AsyncWorker(Shared& shared, AsyncClient& client, int number);

  void run();

  const Recorder& recorder() const { return recorder_; }
  std::size_t cancelled() const { return cancelled_; }
  const std::map<std::string, std::size_t>& errors() const { return errors_; }

 private:
  using Key = Choices::Key;
  // One of the operations under way.
  struct Lane {
    std::variant<std::monostate, Pending<Value>, Pending<std::uint64_t>, Pending<Counter>,
                 Pending<CounterSwap>>
        pending;
    std::size_t op = 0;
    std::string key;
    std::stop_source stop;
  };
  static constexpr std::size_t kLanes = 8;

  void begin(std::size_t number);
  template <class T>
  void start(Lane& lane, rkv::Call<T> call);
  void finish_ready();
  void finish(Lane& lane);
  template <class T>
  void take(Lane& lane, const Result<T>& result);

  Shared& shared_;
  AsyncClient& client_;
  Choices choices_;
  Random& random_ = choices_.random();
  Recorder recorder_;
  std::array<Lane, kLanes> lanes_;
  std::map<std::string, std::uint64_t> versions_;  // last seen
  std::map<std::string, std::int64_t> numbers_;    // last seen
  std::size_t cancelled_ = 0;
  std::map<std::string, std::size_t> errors_;
};

}  // namespace rkv::history
