#include "server/program/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <expected>
#include <string_view>
#include <utility>

#include "common/named_file.h"
#include "common/parse.h"

namespace rkv::server {

namespace {

// A longer file is not a configuration file, and may be endless (a device).
constexpr std::size_t kLongest = std::size_t{1} << 20;

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
    const auto text = read_named_file(path, kLongest);
    if (!text) {
      file.error = fmt::format(
          "cannot read the configuration file {}: {}", path.empty() ? "\"\"" : shown(path),
          text.error().is_too_long ? "it is longer than 1 MiB, too long for a configuration"
                                   : text.error().why);
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
