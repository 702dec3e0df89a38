// kvclient: the store from a shell.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/options.h"
#include "client/cli/output.h"
#include "client/cli/shell.h"

namespace rkv::cli {
namespace {

constexpr std::chrono::milliseconds kPause{100};  // between attempts at a busy server

// Everything about reaching the server is exit code 3, whatever the reason.
int connect_and_run(const ClientOptions& options, auto&& with_client) {
  std::string refusal;
  auto client = Client::connect(options, &refusal);
  // A server that is loading, or has no place just now, is waited for.
  const auto end = std::chrono::steady_clock::now() + options.timeout;
  while (!client && client.error().code == Code::kBusy && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kPause);
    client = Client::connect(options, &refusal);
  }
  if (!client) {
    std::string sentence =
        fmt::format("cannot reach {}: {}", options.server, to_string(client.error()));
    if (!refusal.empty()) sentence += fmt::format(": {}", refusal);
    complain(sentence);
    return kNoServer;
  }
  return with_client(*client);
}

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
    return connect_and_run(globals.client,
                           [&](Client& client) { return run_shell(client, globals); });
  }
  auto job = prepare(std::move(parsed.command));
  if (!job) {
    complain(job.error().sentence);
    return job.error().exit_code;
  }
  return connect_and_run(globals.client, [&](Client& client) { return run(client, *job, false); });
}

// Output that did not arrive is a failure, too: a full disk, a closed pipe.
int end(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  complain("cannot write to standard output");
  return exit_code == kDone ? kFailed : exit_code;
}

}  // namespace
}  // namespace rkv::cli

int main(int argc, char** argv) {
  try {
    return rkv::cli::end(rkv::cli::run_program({argv + 1, argv + argc}));
  } catch (const std::exception& problem) {  // std::bad_alloc above all
    std::fprintf(stderr, "kvclient: %s\n", problem.what());
    return rkv::cli::kFailed;
  }
}
