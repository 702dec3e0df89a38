#include "tests/history/judge.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

namespace rkv::history {
namespace {

std::filesystem::path kept_directory() {
  if (const char* chosen = std::getenv("RKV_HISTORY_DIR")) return chosen;
  const char* output = std::getenv("GTEST_OUTPUT");
  if (output != nullptr && std::string_view(output).starts_with("xml:")) return output + 4;
  return RKV_HISTORY_DIR;
}

}  // namespace

std::string judge(const History& history, const CheckLimits& limits, const std::string& name,
                  History* imported) {
  std::error_code ignored;
  std::filesystem::create_directories(kept_directory(), ignored);
  const std::string path = kept_directory() / fmt::format("history-{}.jsonl", name);
  if (!export_to(path, history)) return path + " cannot be written";
  std::string complaint;
  auto read = import_from(path, &complaint);
  if (!read) return fmt::format("{}: {}", path, complaint);
  if (read->size() != history.size()) {
    return fmt::format("{} has {} of {} operations", path, read->size(), history.size());
  }
  const auto violation = check(*read, limits);
  if (imported != nullptr) *imported = std::move(*read);
  if (!violation) {
    std::filesystem::remove(path, ignored);
    return {};
  }
  return fmt::format("{}the history: {}\n(keys expire up to {} ms late here)", violation->text,
                     path, limits.search.expiry_late / kNanosPerMs);
}

}  // namespace rkv::history
