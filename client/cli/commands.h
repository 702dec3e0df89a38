// The verbs of kvclient.
//
// A command is first prepared, then run. To prepare means: arguments are decoded, files and
// standard input are read, everything is checked. So most mistakes are reported before anything is
// connected.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/cli/options.h"
#include "rkv/cluster.h"

namespace rkv::cli {

struct Job {
  Command command;
  std::vector<std::string> arguments;  // decoded: keys, the value
  std::vector<std::int64_t> numbers;   // incr, decr, cas: the numbers after the key
  RecordSet records;                   // load, verify: all records, or with a reader the first part
  std::optional<RecordReader> reader;  // load: the remaining parts
  bool of_script = false;              // one of several commands on standard input
};

OrFailure<Job> prepare(Command command);

// Runs a prepared command and prints its result on standard output. `interactive`: for a person at
// a terminal, who gets a confirmation.
ExitCode run(Cluster& client, Job& job, bool interactive);

// The text of a value: the number of a counter, otherwise the bytes as they are.
std::string shown_value(const Value& value);
// Prints "kvclient: SENTENCE" on standard error.
void complain(std::string_view sentence);
// The sentence for an operation's error, with the server's message. If there are several servers,
// it names the server of the key, or without a key the server of the last operation.
std::string describe(const Error& error, const Cluster& client, std::string_view key = {});
// "ADDRESS: " of the key's server; empty if there is only one server.
std::string server_prefix(const Cluster& client, std::string_view key);
// Prints the error and returns its exit code.
ExitCode fail_with(const Error& error, const Cluster& client);

ExitCode run_exists(Cluster& client, const Job& job);  // key_facts.cc
ExitCode run_ttl(Cluster& client, const Job& job);
ExitCode run_load(Cluster& client, Job& job);    // load.cc
ExitCode run_verify(Cluster& client, Job& job);  // verify.cc
ExitCode run_dump(Cluster& client, Job& job);    // scan.cc
ExitCode run_scan(Cluster& client, Job& job);
ExitCode run_flush(Cluster& client, const Job& job, bool interactive);  // servers.cc
ExitCode run_backup(Cluster& client, const Job& job);
ExitCode run_stats(Cluster& client, const Job& job);
ExitCode run_ping(Cluster& client, const Job& job);
// watch.cc. `interactive`: Ctrl-C ends the watch, and this function returns.
ExitCode run_watch(Cluster& client, const Job& job, bool interactive);
ExitCode run_bench(Cluster& client, const Job& job);  // bench.cc

}  // namespace rkv::cli
