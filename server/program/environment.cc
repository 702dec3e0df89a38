#include "server/program/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <string_view>
#include <utility>

#include "common/parse.h"
#include "server/program/options.h"

namespace rkv::server {

namespace {

// Edit distance: the letters to insert, remove or replace to turn one string into the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string environment_name(const std::string& name) {
  std::string variable = "KVSERVER_" + name;
  std::ranges::transform(variable, variable.begin(), [](char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  });
  return variable;
}

std::vector<std::string> unknown_variables(const char* const* environment) {
  std::vector<std::string> known = option_names();
  std::ranges::transform(known, known.begin(), environment_name);
  std::vector<std::string> sentences;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with("KVSERVER_") || std::ranges::find(known, name) != known.end()) continue;
    const auto nearest = std::ranges::min_element(
        known, {}, [&](const std::string& one) { return distance(name, one); });
    sentences.push_back(
        fmt::format("{} is not an option's variable and is ignored{}", shown(name),
                    distance(name, *nearest) <= 2 ? ": is " + *nearest + " meant?" : ""));
  }
  return sentences;
}

}  // namespace rkv::server
