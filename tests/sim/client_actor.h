// One simulated application: a client of the product, its requests and its answers.
//
// Thread safety: none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rkv/client.h"
#include "tests/sim/history.h"
#include "tests/sim/plan.h"
#include "tests/sim/wall.h"

namespace rkv::sim {

// The state that all actors of a run share.
struct Story {
  Story(std::uint64_t seed, Canary canary);

  std::shared_ptr<Fabric> fabric;
  rdma::sim::Scheduler& scheduler;
  Random random;  // for the actors' choices
  Plan plan;
  Disk disk;
  Wall wall;
  History history;
  std::vector<std::string> keys;  // hot keys first, then counters, then counters in cells
  std::size_t operations_done = 0;
  std::size_t clients_working = 0;
  bool clock_working = false;
  bool room_working = false;
  bool disk_is_full = false;  // until the server has found that there is space again
  Nanos was_full = 0;         // the last time that disk_is_full was true
  std::uint64_t full_refusals = 0;
  bool calm = false;   // all faults are over, and the server runs
  WaitPoint progress;  // wakes the operator
};

class ClientActor {
 public:
  ClientActor(Story& story, int number);
  // The body of the fiber: operations, and after the faults a read of every key.
  void run();
  const ClientStats& stats() const { return stats_; }

 private:
  static constexpr std::size_t kManyKeys = 6;
  static constexpr std::size_t kFullPacks = 80;  // PUTs of one call

  bool connect();
  void operate();
  std::size_t any_key();
  std::size_t any_counter();
  std::size_t any_length();
  Durability any_durability();
  void get(std::size_t key);
  void put(std::size_t key);
  void add(std::size_t key);
  void scan();
  void remove(std::size_t key);
  void multi_get();
  void multi_put();
  void flush();
  void look_at_everything();
  void count_in_cell();
  OneSidedCounter* opened(std::size_t key);
  void look_at_cell(std::size_t key);
  void add_in_cell(std::size_t key);
  void multi_add();
  void swap_in_cell(std::size_t key);
  void take_number(std::size_t number, const Result<Counter>& result, bool opens);

  std::size_t begin(Op::Kind kind, std::size_t key);
  std::size_t begin_put(std::size_t key);
  PutOptions any_put_options(Op& op);
  std::int64_t any_life_ms();
  void take_value(std::size_t number, std::string_view value, bool is_counter, Version version);
  void end(std::size_t number);
  void take(std::size_t number, const Result<Value>& result);
  void take_write(std::size_t number, const Result<std::uint64_t>& result);
  void failed(std::size_t number, const Error& error, bool reads_disk = false);
  bool excused(const Op& op, const Error& error, bool reads_disk);
  bool is_lost_without_cause(const Op& op, const Error& error) const;

  Story& story_;
  const int number_;
  const ClientOptions options_;
  std::optional<Client> client_;
  ClientStats stats_;
  std::vector<Version> seen_;  // by key: the last version reported to this client
  std::vector<std::optional<OneSidedCounter>> counters_;  // by key
  std::vector<std::int64_t> numbers_;  // by key: the last number reported to this client
  Client::Timeout timeout_{0};
};

}  // namespace rkv::sim
