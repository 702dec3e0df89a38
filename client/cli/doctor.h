// kvclient doctor: checks RDMA on this machine and the named servers, and gives advice for each
// fault.
//
// rdma/diagnosis/diagnosis.h and ask_server() gather facts. judge_machine() and judge_server() turn
// the facts into findings and access nothing else, so that tests can check every fault with made-up
// facts.
//
// A fault that keeps the requested transport from working is an error. With --transport auto a
// machine without any RDMA device is a warning, since shared memory works there. A device that
// exists and does not work is an error.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/cli/options.h"
#include "rdma/diagnosis/diagnosis.h"

namespace rkv::cli {

struct Finding {
  enum class Level : std::uint8_t { kOk, kWarning, kError };
  std::string check;    // "port"; README.md lists them
  std::string subject;  // "rxe0/1", a server's address; "" = the machine
  Level level = Level::kOk;
  std::string found;
  std::string advice{};  // empty only with kOk; commands stand in backquotes
};

// ---- the machine

struct Asked {
  Transport transport = Transport::kAuto;
  std::string device{};          // "" = any
  std::uint8_t port = 0;         // port of the device; 0 = any active port
  int gid_index = -1;            // -1 = routing decides
  std::size_t client_bytes = 0;  // registered for one server: Client::registered_bytes()
  std::size_t large_bytes = 0;   // additional memory for large values, for one server
  std::size_t servers = 1;       // servers of the store: a client registers these bytes for each
};
struct MachineFacts {
  bool had_uverbs = true;  // read before libibverbs and librdmacm, which may load modules, are used
  bool had_cm = true;
  rdma::SystemFacts system{};
  rdma::VerbsFacts verbs{};
  rdma::ConnectionTimers timers{};
  std::optional<rdma::Trial> trial{};
  std::string shared_memory{};        // description by the shared memory transport
  std::string shared_memory_error{};  // or the reason why it cannot be used
  std::vector<rdma::ShmDirectory> shm_directories{};
};
std::vector<Finding> judge_machine(const MachineFacts& facts, const Asked& asked);

// ---- a server

struct ServerFindings {
  struct Latency {
    std::uint64_t count = 0;
    double p50_us = 0;
    double p99_us = 0;
    std::string error{};  // why the measurement ended early
  };
  std::string address{};
  bool connected = false;
  bool has_stats = false;        // it has told what follows
  std::optional<Error> error{};  // why it was not reached, or why it gave no statistics
  std::string refusal{};         // its message when it was not reached
  bool over_verbs = false;       // also true if verbs would have been used to reach it
  std::string transport{};       // the transport and the reason for it
  std::string version{};
  std::uint64_t epoch = 0;
  // The server's networks that serve no client at present.
  struct Closed {
    std::string transport{};  // "verbs"
    std::string state{};      // "waiting"
    std::string why{};
  };
  std::vector<Closed> closed{};
  // The primary's report about its replicated group. If a backup was asked, it has directed the
  // client to the primary, so the primary has answered.
  struct Group {
    struct Member {
      std::string name{};
      std::string address{};
      bool in_sync = false;
      bool connected = false;    // of a backup, to the primary
      bool unreachable = false;  // by the primary, which it is connected to
    };
    std::string name{};
    std::uint64_t number = 0;  // tells it from others, also from those of the same name
    std::string primary{};     // its name
    std::string address{};     // the primary's
    std::uint64_t term = 0;
    double etcd_silent_s = 0;
    double etcd_refuses_s = 0;  // it answers, and stores no change
    std::vector<Member> members{};
  };
  std::optional<Group> group{};
  Latency read{};  // one-sided
  Latency ping{};  // by request
};
// Connects, READs and pings 200 times each or for two seconds, and requests the statistics. Blocks
// for options.timeout at most for each operation.
ServerFindings ask_server(const ClientOptions& options);
// As ask_server(), with a client that is connected.
void ask_client(Client& client, ServerFindings& facts);
// `named`: a flag or the environment named the server.
std::vector<Finding> judge_server(const ServerFindings& facts, bool named);

// Whether the server that was asked is a backup, and another one has answered: the primary.
bool was_directed(const ServerFindings& facts);

// Checks a list of servers: two addresses of one process are an error, unless it is the primary of
// a group, to which a backup has directed.
std::vector<Finding> judge_list(std::span<const ServerFindings> servers);
// Checks a list of servers of one group, which is what clients take it for: servers of several
// groups, or of none, are an error.
std::vector<Finding> judge_one_group(std::span<const ServerFindings> servers);
// The groups that the servers belong to: who is the primary, and what is not as it should be.
std::vector<Finding> judge_groups(std::span<const ServerFindings> servers);

// ---- the verb

const char* to_string(Finding::Level level);
// One line: level, check, finding, advice.
std::string to_line(const Finding& finding);
// kDone without an error; kNoServer when a server was not reached; else kFailed.
ExitCode exit_code_of(const std::vector<Finding>& findings);

// Runs the verb. Blocks for some seconds: a trial of the device and measurements of the servers.
ExitCode run_doctor(const Command& command);

}  // namespace rkv::cli
