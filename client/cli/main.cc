// kvclient: the store from a shell.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/doctor.h"
#include "client/cli/options.h"
#include "client/cli/output.h"
#include "client/cli/shell.h"
#include "common/keep_descriptors.h"

namespace rkv::cli {
namespace {

int run_program(const std::vector<std::string>& arguments) {
  Parsed parsed = parse_arguments(arguments, [](const char* name) { return std::getenv(name); });
  if (parsed.kind == Parsed::Kind::kText) {
    print_raw(parsed.text);
    return kDone;
  }
  if (parsed.kind == Parsed::Kind::kUsageError) {
    complain(parsed.text);
    return kUsage;
  }
  parsed.command.globals.client.name = "kvclient";
  const Globals globals = parsed.command.globals;
  if (parsed.command.verb == Verb::kShell) {
    auto client = connect(globals.servers, globals.client);
    if (client) return run_shell(*client, globals);
    complain(client.error().sentence);
    return client.error().exit_code;
  }
  if (parsed.command.verb == Verb::kDoctor) return run_doctor(parsed.command);
  auto job = prepare(std::move(parsed.command));
  if (!job) {
    complain(job.error().sentence);
    return job.error().exit_code;
  }
  auto client = connect(globals.servers, globals.client);
  if (client) return run(*client, *job, false);
  if (job->command.alive && client.error().wants_user) {
    print_raw("alive: the server asks for a user\n");
    return kDone;
  }
  complain(client.error().sentence);
  return client.error().exit_code;
}

// Flushes the output: output that did not arrive (a full disk, a closed pipe) is a failure.
int end(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  complain("cannot write to standard output");
  return exit_code == kDone ? kFailed : exit_code;
}

}  // namespace
}  // namespace rkv::cli

RKV_KEEP_STANDARD_DESCRIPTORS;

int main(int argc, char** argv) {
  // The failed write then reports a file that may not grow further, as it reports a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return rkv::cli::end(rkv::cli::run_program({argv + 1, argv + argc}));
  } catch (const std::exception& problem) {  // mainly std::bad_alloc
    rkv::cli::complain(problem.what());
    return rkv::cli::kFailed;
  }
}
