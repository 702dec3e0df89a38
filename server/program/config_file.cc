#include "server/program/config_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <expected>
#include <string_view>
#include <utility>

#include "common/parse.h"
#include "server/persistence/files.h"

namespace rkv::server {

namespace {

// A longer file is not a configuration file, and may be endless (a device).
constexpr std::size_t kLongest = std::size_t{1} << 20;

// Returns the file's bytes, or why they cannot be read.
std::expected<std::string, std::string> whole_file(const std::string& path) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return std::unexpected(strerror(errno));
  std::string text;
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t got = read(fd.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::unexpected(strerror(errno));
    if (got == 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
    if (text.size() > kLongest)
      return std::unexpected("it is longer than 1 MiB, too long for a configuration");
  }
}

// Converts a TOML value to text; the error says what is wrong with the value.
std::expected<std::string, std::string> as_setting(std::string_view key, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
  if (const auto* yes = node.as_boolean()) return yes->get() ? "true" : "false";
  if (node.is_table()) {
    return std::unexpected(
        fmt::format("[{}]: tables are not supported: write options at the top level", shown(key)));
  }
  return std::unexpected(fmt::format("{} must be a string or a number", shown(key)));
}

}  // namespace

ConfigFile read_config_file(const std::string& path) {
  ConfigFile file;
  try {
    const auto text = whole_file(path);
    if (!text) {
      file.error = fmt::format("cannot read the configuration file {}: {}",
                               path.empty() ? "\"\"" : shown(path), text.error());
      file.could_be_read = false;
      return file;
    }
    const toml::table table = toml::parse(*text);
    for (const auto& [key, node] : table) {
      auto value = as_setting(key.str(), node);
      if (!value) {
        file.error = fmt::format("{}:{}: {}", shown(path), node.source().begin.line, value.error());
        return file;
      }
      file.values.emplace(key.str(), std::move(*value));
    }
  } catch (const toml::parse_error& error) {
    file.error = fmt::format("{}:{}: {}", shown(path), error.source().begin.line,
                             shown(error.description()));
  } catch (const std::exception& error) {
    file.error = fmt::format("{}: {}", shown(path), shown(error.what()));
  }
  return file;
}

}  // namespace rkv::server
