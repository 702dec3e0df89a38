// One simulated application: a client of the product, what it asks for, and what it is told.
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

// What all actors of a run share.
struct Story {
  Story(std::uint64_t seed, Canary canary);

  std::shared_ptr<Fabric> fabric;
  rdma::sim::Scheduler& scheduler;
  Random random;  // what actors choose
  Plan plan;
  Disk disk;
  Wall wall;
  History history;
  std::vector<std::string> keys;  // the hot ones first, the counters last,
                                  // those in cells behind them
  std::size_t operations_done = 0;
  std::size_t clients_working = 0;
  bool clock_working = false;
  bool room_working = false;
  bool disk_is_full = false;  // or the server has not yet found out that there is room again
  Nanos was_full = 0;         // when that last was so
  std::uint64_t full_refusals = 0;
  bool calm = false;   // all faults are over; the server is up
  WaitPoint progress;  // the operator's
};

class ClientActor {
 public:
  ClientActor(Story& story, int number);
  // The body of its fiber: operations, and when all is calm a look at every key.
  void run();
  const ClientStats& stats() const { return stats_; }

 private:
  static constexpr std::size_t kManyKeys = 6;

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

  Story& story_;
  const int number_;
  const ClientOptions options_;
  std::optional<Client> client_;
  ClientStats stats_;
  std::vector<Version> seen_;  // of each key, the last version that this client was told of
  std::vector<std::optional<OneSidedCounter>> counters_;  // by key
  std::vector<std::int64_t> numbers_;                     // by key, the last that it was told
  Client::Timeout timeout_{0};
};

}  // namespace rkv::sim
