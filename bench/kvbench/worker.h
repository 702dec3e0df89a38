// One thread of a run: its connection, its choices, its measurements.
//
// Thread safety: run() and what it uses belong to one thread. done(), measurements() and Stop may
// be used from any thread; stats() and counters() after run() has returned.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/kvbench/measurements.h"
#include "bench/kvbench/options.h"
#include "bench/kvbench/store.h"
#include "bench/kvbench/workload.h"
#include "common/mutex.h"

namespace rkv::kvbench {

// Requests all threads to end. Keeps the reason of the first request.
class Stop {
 public:
  // `why` is empty for a planned end (the time is over).
  void request(std::string why);
  // As request(); in addition, the server gets no further requests.
  void server_lost(std::string why);
  bool is_server_lost() const { return server_lost_.load(std::memory_order_relaxed); }
  bool requested() const { return requested_.load(std::memory_order_relaxed); }
  std::string why() const;

 private:
  std::atomic<bool> requested_{false};
  std::atomic<bool> server_lost_{false};
  mutable Mutex mutex_;
  std::string why_ RKV_GUARDED_BY(mutex_);
};

// A drawn operation: a record, and the fields to write.
struct Draft {
  std::string key;
  std::string bytes;                     // content of the fields
  std::vector<std::string_view> fields;  // views into `bytes`: all fields, or only `field`
  std::optional<std::size_t> field;
};

// One of several operations in flight.
struct Slot {
  Operation operation = Operation::kRead;
  Draft draft;
  std::uint64_t inserted = 0;  // number of the record to insert
  std::string value;           // the value read, then the value to put
  Answer answer;               // answer of the GET, then of the PUT
  Nanos due = 0;               // 0 = when the batch begins
  Nanos got = 0;               // when the GET was answered
  Nanos put = 0;               // when the PUT was answered
};

class Worker {
 public:
  // `operations`: number for this thread; 0 = until the stop.
  Worker(const Options& options, Workload& workload, Cluster client, Stop& stop, std::size_t number,
         std::uint64_t operations);

  // Runs the operations until they are done or a stop is requested. Blocks; after a stop for up to
  // the timeout of one operation.
  void run();

  std::uint64_t done() const { return done_.load(std::memory_order_relaxed); }
  std::uint64_t operations() const { return operations_; }
  const Measurements& measurements() const { return measurements_; }
  const ClientStats& stats() const { return stats_; }
  const StoreCounters& counters() const { return counters_; }

 private:
  void run_singly(Nanos began);
  void wait_for_random_start();
  void throttle(Nanos began, std::uint64_t done);
  void sleep_until(Nanos until);
  Nanos due_at(Nanos began, std::uint64_t done) const {
    return began + static_cast<Nanos>(done) * tick_;
  }

  // Returns false if the load must end.
  bool load_one();
  bool insert_again(const Draft& draft, Answer answer);  // after a failed insertion
  // Returns false if a stop was requested before a record was chosen.
  bool transaction();
  // ---- worker_batch.cc: several operations at once
  void run_batches(Nanos began);
  std::size_t wait_until_due(Nanos began, std::uint64_t done);
  std::uint64_t batch(std::size_t count);
  bool draw(Slot& slot);  // false: as transaction()
  void get_batch(Nanos begin);
  void after_get(Slot& slot, Nanos begin);
  void change_field(Slot& slot);
  std::uint64_t put_batch(Nanos begin);
  void skip_unread(Nanos begin);
  bool after_put(Slot& slot, Nanos begin, Nanos put_begin);
  std::uint64_t scan_batch(std::size_t count);

  // ---- on the record in draft_, except insert()
  void read();
  void update();
  void insert();
  void scan();
  void read_modify_write();

  // Records the operation. After a failure, checks whether the server is still there.
  void end_operation(Kind kind, const Answer& answer, Nanos begin);
  void look_after_server(const Answer& answer);
  bool choose_key(Draft& draft);  // false: a stop was requested first
  // Generates the fields to write: all, or one.
  void make_written_fields(Draft& draft);
  void make_fields(Draft& draft, std::size_t first, std::size_t count);
  void verify(std::string_view key, const std::vector<std::string_view>& fields);

  const Options& options_;
  const WorkloadSettings& settings_;
  Workload& workload_;
  Stop& stop_;
  const std::uint64_t operations_;
  const SteadyClock clock_;
  Chooser chooser_;
  Measurements measurements_;
  std::optional<Store> store_;  // exists until run() ends
  std::atomic<std::uint64_t> done_{0};
  ClientStats stats_;
  StoreCounters counters_;

  Nanos tick_ = 0;              // interval between two operations; 0 = no throttle
  Nanos due_ = 0;               // when the current operation is due; 0 = when it begins
  std::size_t seen_alive_ = 0;  // index of the server last seen alive
  std::vector<std::string> field_names_;
  Draft draft_;              // used without batches
  std::vector<Slot> slots_;  // used with batches
  std::vector<std::string_view> keys_;
  std::vector<KeyValue> items_;
  std::vector<Slot*> getting_;
  std::vector<Slot*> putting_;
  std::vector<std::string_view> read_fields_;
  std::string spare_;
  std::string expected_;
};

}  // namespace rkv::kvbench
