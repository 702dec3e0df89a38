// Common part of the benchmark programs: flags, one phase, one JSON object on standard output.
//
//   json fill(const Arguments& given) {
//     Client client = given.connect();
//     ...
//     return {{"keys", n}};
//   }
//   int main(int argc, char** argv) {
//     return rkv::bench::run_program(argc, argv,
//                                    {.name = "bench_x",
//                                     .purpose = "What x costs.",
//                                     .flags = {{"keys", "to store", 1000}},
//                                     .phases = {{"fill", fill}}});
//   }
//
// Each program also takes --server, --phase, --transport and --poll. A phase that cannot continue
// throws (give_up(), or Misuse for wrong flags). Exit status: 0 done, 2 wrong arguments, 3 no
// server to connect to, 4 any other failure. A failure prints one sentence on standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/histogram.h"
#include "rkv/client.h"

namespace rkv::bench {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

// A flag has an invalid value.
struct Misuse : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// There is no server to connect to.
struct NoServer : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void give_up(const char* what, const Error& error);
[[noreturn]] void give_up_connecting(const Error& error);
// Returns the value, or gives up with the error.
template <class Value>
Value value_or_give_up(const char* what, Result<Value> result) {
  if (!result) give_up(what, result.error());
  return std::move(*result);
}

struct Program;

class Arguments {
 public:
  std::uint64_t operator[](const std::string& flag) const { return numbers_.at(flag); }
  const std::string& text(const std::string& flag) const { return texts_.at(flag); }
  // Options with --server, --poll and a timeout of five minutes per call; a pipelined call counts
  // as one.
  ClientOptions client_options() const;
  Client connect(const ClientOptions& options) const;  // over --transport
  Client connect() const { return connect(client_options()); }

 private:
  friend int run_program(int argc, char** argv, const Program& program);
  std::map<std::string, std::uint64_t> numbers_;
  std::map<std::string, std::string> texts_;
};

struct Program {
  struct Number {  // values are at least 1
    const char* flag;
    const char* help;
    std::uint64_t value;  // default
  };
  struct Text {
    const char* flag;
    const char* help;
    const char* value = "";
  };
  struct Phase {
    const char* name;
    json (*run)(const Arguments& given);
  };
  const char* name;
  const char* purpose;
  std::vector<Number> flags;
  std::vector<Phase> phases;
  std::vector<Text> texts = {};
};

int run_program(int argc, char** argv, const Program& program);

std::string key_of(std::uint64_t number);  // 16 bytes
std::vector<std::string> keys_of(std::uint64_t count);
std::vector<std::string> shuffled_keys_of(std::uint64_t count);
// 1024 values to be used in turn. LZ4 halves their size: half of each is random, the rest repeats
// it.
std::vector<std::string> values_of(std::size_t bytes);
double seconds_since(Clock::time_point begin);
json server_stats(Client& client);
// Puts all items, pipelined.
void put_all(Client& client, const std::vector<KeyValue>& items, const WriteOptions& options = {});

// Runs `operation` and records how long it took, in nanoseconds.
template <class Operation>
auto timed(Histogram& nanoseconds, Operation operation) {
  const auto begin = Clock::now();
  auto result = operation();
  nanoseconds.record(static_cast<std::uint64_t>((Clock::now() - begin).count()));
  return result;
}
// Keys p50_us, p99_us, p999_us, and curve_us: pairs of percentage and microseconds.
json percentiles(const Histogram& nanoseconds);

}  // namespace rkv::bench
