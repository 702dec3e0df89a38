#include "client/cli/server_list.h"

#include <fmt/format.h>

#include <utility>

#include "common/named_file.h"

namespace rkv::cli {

namespace {

// Enough for 64 servers with names and comments. The limit stops reading from an endless device.
constexpr std::size_t kLongestFile = std::size_t{64} << 10;

std::string set(std::string_view text, const std::string& where, Globals& globals) {
  std::string problem;
  auto parsed = ShardMap::parse(text, &problem);
  if (!parsed) return fmt::format("{}: {}", where, problem);
  globals.servers = *std::move(parsed);
  return {};
}

}  // namespace

std::string set_servers(Globals& globals, std::string_view /*name*/, const std::string& list) {
  return set(list, "--servers", globals);
}

std::string set_servers_file(Globals& globals, std::string_view /*name*/, const std::string& path) {
  auto text = read_named_file(path, kLongestFile);
  if (!text) {
    if (!text.error().is_too_long)
      return fmt::format("--servers-file: cannot read {}: {}", path, text.error().why);
    return fmt::format("--servers-file: {} is longer than 64 KiB: it is not a list of servers",
                       path);
  }
  if (!text->ends_with('\n')) *text += '\n';  // so that errors have line numbers
  return set(*text, fmt::format("--servers-file: {}", path), globals);
}

}  // namespace rkv::cli
