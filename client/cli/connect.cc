#include "client/cli/connect.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace rkv::cli {

namespace {
constexpr std::chrono::milliseconds kPause{100};  // between attempts at a busy server
}

OrFailure<Client> connect(const ClientOptions& options) {
  std::string refusal;
  auto client = Client::connect(options, &refusal);
  const auto end = std::chrono::steady_clock::now() + options.timeout;
  while (!client && client.error().code == Code::kBusy && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kPause);
    client = Client::connect(options, &refusal);
  }
  if (client) return std::move(*client);
  std::string sentence =
      fmt::format("cannot reach {}: {}", options.server, to_string(client.error()));
  if (!refusal.empty()) sentence += fmt::format(": {}", refusal);
  return failure(kNoServer, std::move(sentence));
}

}  // namespace rkv::cli
