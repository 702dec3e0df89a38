// bench_group: what a replicated group costs its clients; see README.md.
//
//   failover  PUTs one after the other at --server, the replicas of a group. After --puts of them
//             the process --pid, which must be their primary, gets SIGKILL. The time counts from
//             the signal until the next PUT, and then a GET, are answered
//
// Needs running kvservers. Prints one JSON object. Exit status: see program.h.
#include <signal.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "bench/program.h"

namespace rkv::bench {
namespace {

// A PUT whose answer is lost with the primary fails, as its outcome is unknown; a program that
// serves users would then do as this one.
json until_answered(Client& client, Clock::time_point since, const auto& operation) {
  constexpr double kLongestSeconds = 120;
  std::uint64_t failed = 0;
  for (;;) {
    const auto done = operation(client);
    const double seconds = seconds_since(since);
    if (done) return {{"seconds", seconds}, {"failed", failed}};
    if (seconds > kLongestSeconds) give_up("no replica took over", done.error());
    ++failed;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

json failover(const Arguments& given) {
  const auto pid = static_cast<pid_t>(given["pid"]);
  if (pid <= 1) throw Misuse("--pid must be the process of the primary");
  ClientOptions options = given.client_options();
  options.timeout = std::chrono::seconds(10);
  Client client = given.connect(options);
  const std::string key = key_of(0);
  for (std::uint64_t put = 0; put < given["puts"]; ++put)
    value_or_give_up("put", client.put(key, std::to_string(put)));
  const auto killed = Clock::now();
  if (kill(pid, SIGKILL) != 0) throw Misuse("--pid must be the process of the primary");
  const json put = until_answered(client, killed, [&](Client& one) { return one.put(key, "x"); });
  const json get = until_answered(client, killed, [&](Client& one) { return one.get(key); });
  return {{"put", put}, {"get", get}};
}

Program program() {
  return {.name = "bench_group",
          .purpose = "Cost of a replicated group.",
          .flags = {{"puts", "PUTs before the primary is killed", 100},
                    {"pid", "process of the primary", 1}},
          .phases = {{"failover", failover}}};
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(argc, argv, rkv::bench::program());
}
