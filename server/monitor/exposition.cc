#include "server/monitor/exposition.h"

#include <fmt/format.h>

#include <cmath>

namespace rkv::server {

namespace {

// Escapes text as the format requires. Label values come from outside (a device's name), help texts
// do not. A quotation mark is escaped only inside quotes.
std::string escaped(std::string_view text, bool quoted) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quoted) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void Exposition::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(help, false), name, type);
}

void Exposition::line(std::string_view suffix, Labels labels, std::string_view value) {
  text_ += name_;
  text_ += suffix;
  char before = '{';
  for (const auto& [label, of] : labels) {
    text_ += fmt::format("{}{}=\"{}\"", before, label, escaped(of, true));
    before = ',';
  }
  if (before == ',') text_ += '}';
  text_ += fmt::format(" {}\n", value);
}

// The shortest text that reads back as the same number.
std::string Exposition::number(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace rkv::server
