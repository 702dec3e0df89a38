// kvclient doctor: what is right and wrong with RDMA on this machine and with the servers named,
// and what to do about it.
//
// Facts are gathered by rdma/diagnosis.h and by ask_server(); judge_machine() and judge_server()
// turn them into findings and touch nothing, so that every fault can be tested as facts made up.
//
// What counts as an error: what keeps the transport asked for from working. With --transport auto a
// machine without any RDMA device is no error but a warning, for shared memory works there; a
// device that is there and does not work is an error.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/cli/options.h"
#include "rdma/diagnosis.h"

namespace rkv::cli {

struct Finding {
  enum class Level : std::uint8_t { kOk, kWarning, kError };
  std::string check;    // "port"; README.md lists them
  std::string subject;  // "rxe0/1", a server's address; "" = the machine
  Level level = Level::kOk;
  std::string found;
  std::string advice{};  // not empty but with kOk; commands stand in backquotes
};

// ---- the machine

struct Asked {
  Transport transport = Transport::kAuto;
  std::string device{};          // "" = any
  std::uint8_t port = 0;         // of the device; 0 = any that is active
  int gid_index = -1;            // -1 = chosen by routing
  std::size_t client_bytes = 0;  // registered for one server: Client::registered_bytes()
  std::size_t large_bytes = 0;   // for its large values besides
  std::size_t servers = 1;       // of one store: a client registers so much for each
};
struct MachineFacts {
  bool had_uverbs = true;  // before libibverbs and librdmacm were used, which may load modules
  bool had_cm = true;
  rdma::SystemFacts system{};
  rdma::VerbsFacts verbs{};
  rdma::ConnectionTimers timers{};
  std::optional<rdma::Trial> trial{};
  std::string shared_memory{};        // what its transport says of itself
  std::string shared_memory_error{};  // or why there is none
};
std::vector<Finding> judge_machine(const MachineFacts& facts, const Asked& asked);

// ---- a server

struct ServerFacts {
  struct Latency {
    std::uint64_t count = 0;
    double p50_us = 0;
    double p99_us = 0;
    std::string error{};  // why it ended early
  };
  std::string address{};
  bool connected = false;
  std::optional<Error> error{};  // why it was not reached or, connected, gave no statistics
  std::string refusal{};         // what it said when it was not reached
  bool over_verbs = false;       // or would be, had it been reached
  std::string transport{};       // what was taken and why
  std::string version{};
  std::uint64_t epoch = 0;
  // The server's networks that serve no client at present.
  struct Closed {
    std::string transport{};  // "verbs"
    std::string state{};      // "waiting"
    std::string why{};
  };
  std::vector<Closed> closed{};
  Latency read{};  // one-sided
  Latency ping{};  // a request
};
// Connects, READs and pings 200 times each or for two seconds, asks for the statistics. Blocks for
// options.timeout at most for each operation.
ServerFacts ask_server(const ClientOptions& options);
// All but connecting.
void ask_client(Client& client, ServerFacts& facts);
// `named`: somebody said that there is a server.
std::vector<Finding> judge_server(const ServerFacts& facts, bool named);

// Of a list of servers: two addresses of one process.
std::vector<Finding> judge_list(std::span<const ServerFacts> servers);

// ---- the verb

const char* to_string(Finding::Level level);
// One line: level, check, what was found, what to do.
std::string to_line(const Finding& finding);
// kDone without an error; kNoServer when a server was not reached; else kFailed.
ExitCode exit_code_of(const std::vector<Finding>& findings);

// Blocks for some seconds: a trial of the device and what the servers take.
ExitCode run_doctor(const Command& command);

}  // namespace rkv::cli
