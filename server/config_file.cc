#include "server/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <fstream>
#include <optional>
#include <sstream>

namespace rkv::server {

namespace {

std::optional<std::string> as_setting(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* yes = node.as_boolean()) return yes->get() ? "true" : "false";
  return std::nullopt;
}

}  // namespace

ConfigFile read_config_file(const std::string& path) {
  ConfigFile file;
  try {
    std::ifstream stream(path, std::ios::binary);
    std::ostringstream text_stream;
    text_stream << stream.rdbuf();
    if (!stream.is_open() || stream.bad()) {
      file.error = fmt::format("cannot read the configuration file {}: check --config", path);
      return file;
    }
    const std::string text = text_stream.str();
    const toml::table table = toml::parse(text);
    for (const auto& [key, node] : table) {
      const auto value = as_setting(node);
      if (!value) {
        file.error = fmt::format("{}: \"{}\" must be a text or a number", path, key.str());
        return file;
      }
      file.values.emplace(key.str(), *value);
    }
  } catch (const toml::parse_error& error) {
    file.error = fmt::format("{}:{}: {}", path, error.source().begin.line, error.description());
  } catch (const std::exception& error) {
    file.error = fmt::format("{}: {}", path, error.what());
  }
  return file;
}

}  // namespace rkv::server
