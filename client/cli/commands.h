// What the verbs do.
//
// A command is prepared first - arguments decoded, files and standard input read, everything
// checked - so that most mistakes are told before anything is connected; then run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/cli/options.h"
#include "rkv/client.h"

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
ExitCode run(Client& client, Job& job, bool interactive);

// A counter as its number, anything else as it is.
std::string shown(const Value& value);
// "kvclient: SENTENCE" on standard error.
void complain(std::string_view sentence);
// The sentence for an operation's error, with what the server said.
std::string describe(const Error& error, const Client& client);

ExitCode run_load(Client& client, Job& job);    // load.cc
ExitCode run_verify(Client& client, Job& job);  // verify.cc
ExitCode run_dump(Client& client, Job& job);    // scan.cc
ExitCode run_scan(Client& client, Job& job);

}  // namespace rkv::cli
