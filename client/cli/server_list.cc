#include "client/cli/server_list.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

namespace rkv::cli {

namespace {

// Enough for 64 servers with names and comments. The limit stops reading from an endless device.
constexpr std::size_t kLongestFile = std::size_t{64} << 10;

std::string set(std::string_view text, const std::string& where, std::optional<ShardMap>& map) {
  std::string problem;
  auto parsed = ShardMap::parse(text, &problem);
  if (!parsed) return fmt::format("{}: {}", where, problem);
  map.emplace(std::move(*parsed));
  return {};
}

}  // namespace

std::string set_servers(const std::string& list, std::optional<ShardMap>& map) {
  return set(list, "--servers", map);
}

std::string set_servers_file(const std::string& path, std::optional<ShardMap>& map) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const auto cannot_read = [&] {
    return fmt::format("--servers-file: cannot read {}: {}", path, std::strerror(errno));
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return cannot_read();
  std::string text(kLongestFile + 1, '\0');
  errno = 0;
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return cannot_read();
  if (text.size() > kLongestFile) {
    return fmt::format("--servers-file: {} is longer than 64 KiB: it is not a list of servers",
                       path);
  }
  if (!text.ends_with('\n')) text += '\n';  // so that errors have line numbers
  return set(text, fmt::format("--servers-file: {}", path), map);
}

}  // namespace rkv::cli
