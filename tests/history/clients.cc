// history_clients SERVER PREFIX SEED FIRST THREADS: recorded clients of a server over the transport
// of RKV_TEST_TRANSPORT, until they are stopped; for a test on another machine (other_clients.h).
// FIRST: the number of the first thread, of which values are made. It answers lines on stdin:
//
//   time       this machine's clock in nanoseconds, as the history has it
//   begin      the clients begin
//   answered   how many operations have had an answer about a key
//   stop       the clients end
//   report     lines that begin with `stall`, `unanswered`, `reconnects`, `late` and `wrong`, then
//              `history` and the history in the exchange format; the last answer
#include <fmt/format.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/history/crowd.h"
#include "tests/system/world.h"

namespace rkv::history {
namespace {

void tell(const std::string& line) {
  std::cout << line << std::endl;  // the other machine waits for it
}

void report(const std::vector<std::unique_ptr<Worker>>& workers, Nanos longest_stall) {
  Lateness lateness;
  std::size_t unanswered = 0;
  std::uint64_t reconnects = 0;
  std::vector<const History*> parts;
  for (const auto& worker : workers) {
    parts.push_back(&worker->recorder().history());
    lateness.add(worker->lateness());
    unanswered += worker->recorder().unanswered();
    reconnects += worker->stats().reconnects;
    for (const auto& [text, count] : worker->errors())
      fmt::print("wrong {} times without a cause: {}\n", count, text);
  }
  fmt::print("stall {}\nunanswered {}\nreconnects {}\nlate {} {}\nhistory\n", longest_stall,
             unanswered, reconnects, lateness.worst(), lateness.what());
  (void)std::fflush(stdout);
  export_history(std::cout, merge(parts));
  std::cout.flush();
}

void run_clients(const std::string& server, const RunOptions& options, int first) {
  const SteadyClock clock;
  Shared shared{.options = options,
                .clock = clock,
                .address = server,
                .transport = testing_support::test_transport()};
  StallWatch stalls(clock);
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "time") tell(std::to_string(clock.now()));
    if (line == "answered") tell(std::to_string(shared.answered.load()));
    if (line == "begin") {
      for (std::size_t i = 0; i < options.threads; ++i) {
        workers.push_back(std::make_unique<Worker>(shared, first + static_cast<int>(i)));
        threads.emplace_back([worker = workers.back().get()] { worker->run(); });
      }
      tell("begun");
    }
    if (line == "stop") {
      shared.over = true;
      for (std::thread& thread : threads)
        thread.join();
      threads.clear();
      tell("stopped");
    }
    if (line == "report") return report(workers, stalls.stop());
  }
}

}  // namespace
}  // namespace rkv::history

int main(int argc, char** argv) {
  if (argc != 6) {
    fmt::print(stderr, "usage: history_clients SERVER PREFIX SEED FIRST THREADS\n");
    return 2;
  }
  auto options = rkv::history::crowd_options(std::strtoull(argv[3], nullptr, 10), argv[2]);
  options.threads = std::strtoull(argv[5], nullptr, 10);
  rkv::history::run_clients(argv[1], options, std::atoi(argv[4]));
  return 0;
}
