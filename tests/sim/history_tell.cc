// Prints the history of a run for people.
#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/history.h"

namespace rkv::sim {

std::string show(Version version) {
  return fmt::format("{}.{}", version.boot(), version.sequence());
}

std::string History::tell(std::optional<std::size_t> key,
                          const std::vector<std::string>& keys) const {
  static constexpr const char* kKinds[] = {"put", "remove", "get", "flush", "add", "swap", "open"};
  static constexpr const char* kOutcomes[] = {"open",   "ok",      "missing", "conflict",
                                              "failed", "unknown", "stale"};
  static constexpr const char* kEnds[] = {"stopped", "process", "machine"};
  std::vector<std::pair<Nanos, std::string>> lines;
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    if (op.called == 0 || (key && op.key != *key && op.kind != Op::Kind::kFlush)) continue;
    std::string line = fmt::format(
        "{:>12} .. {:>12} ns  client {} #{} {} {}: {}", op.called,
        op.returned == history::kForever ? std::string("?") : std::to_string(op.returned),
        op.client, i, kKinds[static_cast<int>(op.kind)],
        op.kind == Op::Kind::kFlush ? "" : keys[op.key], kOutcomes[static_cast<int>(op.outcome)]);
    if (op.version.bits != 0) line += " version " + show(op.version);
    if (op.kind == Op::Kind::kPut) line += fmt::format(" ({} bytes)", op.length);
    if (op.ttl_ms != 0) line += fmt::format(" lives {} ms", op.ttl_ms);
    if (op.condition == Op::Condition::kIfAbsent) line += " if absent";
    if (op.condition == Op::Condition::kIfVersion) line += " if version " + show(op.expected);
    if (op.kind == Op::Kind::kAdd) line += fmt::format(" {} -> {}", op.number, op.sum);
    if (op.kind == Op::Kind::kSwap) {
      line += fmt::format(" if {}: {} -> {}", op.if_number, op.number, op.sum);
    }
    if (op.kind != Op::Kind::kFlush) line += fmt::format(" [{}]", to_string(op.durability));
    if (op.kind == Op::Kind::kGet && op.outcome == Op::Outcome::kDone) {
      line += op.writer == kNoWriter ? fmt::format(" is {}", op.sum)
                                     : fmt::format(" of put #{}", op.writer);
    }
    if (op.outcome == Op::Outcome::kFailed || op.outcome == Op::Outcome::kUnknown) {
      line += fmt::format(" ({})", to_string(op.error));
    }
    lines.emplace_back(op.called, line);
  }
  for (const Boot& boot : boots_) {
    std::string with;
    if (key && boot.loaded[*key]) with = " with version " + show(boot.loaded[*key]->version);
    if (key && boot.loaded[*key] && boot.loaded[*key]->number)
      with += fmt::format(", number {}", *boot.loaded[*key]->number);
    lines.emplace_back(boot.started,
                       fmt::format("{:>12} ns  boot {} starts{}", boot.started, boot.number, with));
    if (boot.ended == history::kForever) continue;
    lines.emplace_back(boot.ended, fmt::format("{:>12} ns  boot {} ends ({})", boot.ended,
                                               boot.number, kEnds[static_cast<int>(boot.end)]));
  }
  std::ranges::stable_sort(lines, {}, &std::pair<Nanos, std::string>::first);
  std::string text;
  for (const auto& [when, line] : lines)
    text += line + "\n";
  return text;
}

}  // namespace rkv::sim
