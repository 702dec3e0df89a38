// One client thread of a recorded run: its operations and their recording.
//
// Thread safety: a worker belongs to its thread; all workers share Shared.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "rkv/client.h"
#include "tests/history/choices.h"
#include "tests/history/lateness.h"
#include "tests/history/recorder.h"
#include "tests/history/run.h"

namespace rkv::history {

struct Shared {
  const RunOptions& options;
  const Clock& clock;
  std::string address;
  Transport transport;
  std::atomic<std::size_t> done{0};        // operations of all threads
  std::atomic<std::size_t> unanswered{0};  // operations of all threads
  std::atomic<std::size_t> answered{0};    // operations of all threads with an answer about a key
  std::atomic<bool> standing{false};       // the server is suspended: use short deadlines
  std::atomic<bool> over{false};           // end before all operations are done
  std::atomic<bool> held{false};           // call nothing
  std::atomic<std::size_t> resting{0};     // threads that wait because of it

  // True if the run's disturbances explain the error: a server that is away or suspended, a group
  // without a primary, and short deadlines.
  bool explains(Code code) const;
  // Between two operations: waits while `held`.
  void rest_if_held();
};

inline constexpr std::uint16_t kRequestsInFlight = 4;

// Tries until it succeeds.
Client connect(Shared& shared, std::uint64_t seed,
               std::uint16_t requests_in_flight = kRequestsInFlight);

class Worker {
 public:
  Worker(Shared& shared, int number);

  void run();
  // Reads every key, so that the history covers everything written.
  void look_at_everything();
  // The server has died and is there again, and nobody is in a call: records what each key has now.
  void see_restart();

  const Recorder& recorder() const { return recorder_; }
  std::size_t replaced() const { return replaced_; }
  const ClientStats& stats() const { return stats_; }
  const Lateness& lateness() const { return lateness_; }
  const std::map<std::string, std::size_t>& errors() const { return errors_; }

 private:
  using Timeout = Client::Timeout;
  using Key = Choices::Key;

  void operate();
  Timeout any_timeout();
  void replace_client();
  void add_stats();

  void get(const Key& key);
  void get_counter(const Key& key);
  void put(const Key& key);
  void put_if_absent(const Key& key);
  void put_if_version(const Key& key);
  void remove(const Key& key);
  void touch(const Key& key);
  void remove_if_version(const Key& key);
  void incr(const Key& key);
  void counter_cas(const Key& key);
  // The key's handle, for about half of the operations on counters; nullptr for the others. Opens
  // it if necessary, which is a separate operation; nullptr if that failed.
  OneSidedCounter* any_handle(const Key& key);
  void also_opened(std::size_t op, const Key& key, std::uint64_t counted);
  // Runs an operation by `handle`, or by requests without a handle. `operation(handle)` returns its
  // result.
  template <class Operation>
  void count(const Key& key, Call call, Operation operation);
  void multi_get();
  void multi_put();
  void take(std::size_t op, const std::string& key, const Result<Value>& got);
  template <class T>
  void take(std::size_t op, const Result<T>& result);
  void note(const Error& error);
  void note_end(std::size_t op);

  Shared& shared_;
  Choices choices_;
  Random& random_ = choices_.random();
  Recorder recorder_;
  std::optional<Client> client_;
  Timeout timeout_{0};  // of the last operation
  Lateness lateness_;
  std::size_t replaced_ = 0;
  std::map<std::string, std::uint64_t> versions_;   // last seen
  std::map<std::string, std::int64_t> numbers_;     // last seen
  std::map<std::string, OneSidedCounter> handles_;  // of the current client
  ClientStats stats_{};
  std::map<std::string, std::size_t> errors_;
};

}  // namespace rkv::history
