// What the verbs do.
//
// A command is prepared first - arguments decoded, files and standard input read, everything
// checked - so that most mistakes are told before anything is connected; then run.
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
  std::vector<std::int64_t> numbers;   // incr, decr, cas: what follows the key
  RecordSet records;                   // load, verify: all, or with a reader the first of them
  std::optional<RecordReader> reader;  // load: the rest
};

OrFailure<Job> prepare(Command command);

// Runs a prepared command and prints its result on standard output. `interactive`: for a person at
// a terminal, who wants to see that something was done.
ExitCode run(Cluster& client, Job& job, bool interactive);

// A counter as its number, anything else as it is.
std::string shown(const Value& value);
// "kvclient: SENTENCE" on standard error.
void complain(std::string_view sentence);
// The sentence for an operation's error, with what the server said; of several servers, which one:
// that of the key, or without one that of the last operation.
std::string describe(const Error& error, const Cluster& client, std::string_view key = {});
// "ADDRESS: " of that server; nothing where there is one only.
std::string server_prefix(const Cluster& client, std::string_view key);
// Says so; the exit code for it.
ExitCode fail_with(const Error& error, const Cluster& client);

ExitCode run_load(Cluster& client, Job& job);    // load.cc
ExitCode run_verify(Cluster& client, Job& job);  // verify.cc
ExitCode run_dump(Cluster& client, Job& job);    // scan.cc
ExitCode run_scan(Cluster& client, Job& job);
ExitCode run_flush(Cluster& client, const Job& job, bool interactive);  // servers.cc
ExitCode run_backup(Cluster& client, const Job& job);
ExitCode run_stats(Cluster& client, const Job& job);
ExitCode run_ping(Cluster& client, const Job& job);

}  // namespace rkv::cli
