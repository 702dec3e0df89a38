#include "tests/history/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace rkv::history {

const char* to_string(Function f) {
  static constexpr std::array<const char*, 11> kNames = {
      "get",   "put",  "put_if_absent", "put_if_version", "remove", "remove_if_version",
      "touch", "incr", "counter_cas",   "open_counter",   "restart"};
  return kNames.at(static_cast<std::size_t>(f));
}

bool is_write(Function f) {
  return f != Function::kGet;
}

bool tells(const Answer& answer) {
  if (answer.outcome != Outcome::kFail) return answer.outcome == Outcome::kOk;
  return answer.error == Code::kNotFound || answer.error == Code::kConflict ||
         answer.error == Code::kWrongType || answer.error == Code::kOutOfRange;
}

History merge(std::span<const History* const> parts) {
  History all;
  for (const History* part : parts)
    all.insert(all.end(), part->begin(), part->end());
  std::ranges::stable_sort(all, {}, &Operation::invoked);
  return all;
}

namespace {

std::string show(const Content& content) {
  if (content.kind == Content::Kind::kAbsent) return "nothing";
  if (content.kind == Content::Kind::kNumber) return std::to_string(content.number);
  return fmt::format("\"{}\"", content.text);
}

std::string describe(const Call& call) {
  std::string text = to_string(call.f);
  switch (call.f) {
    case Function::kPut:
    case Function::kPutIfAbsent:
    case Function::kPutIfVersion:
      text += fmt::format(" \"{}\"", call.text);
      break;
    case Function::kIncr:
      text += fmt::format(" by {}", call.number);
      break;
    case Function::kCounterCas:
      text += fmt::format(" {} to {}", call.expected, call.number);
      break;
    default:
      break;
  }
  if (call.if_version != 0) text += fmt::format(" if version {}", call.if_version);
  if (call.ttl.count() != 0) text += fmt::format(" ttl {} ms", call.ttl.count());
  return text;
}

}  // namespace

std::string describe(const Operation& operation) {
  const auto& [process, call, answer, invoked, returned, until] = operation;
  std::string text = describe(call) + " -> ";
  if (answer.outcome == Outcome::kInfo) return text + "unknown, it may have happened";
  if (answer.outcome == Outcome::kFail) {
    text += to_string(answer.error);
    if (call.f != Function::kCounterCas || answer.error != Code::kConflict) return text;
    text += ": " + show(answer.content);
  } else {
    text += "ok";
    const bool told = call.f == Function::kGet || call.f == Function::kIncr ||
                      call.f == Function::kCounterCas || call.f == Function::kRestart;
    if (told) text += " " + show(answer.content);
  }
  if (answer.version != 0) text += fmt::format(" version {}", answer.version);
  if (answer.expires_at_ms != 0) text += ", expires";
  return text;
}

}  // namespace rkv::history
