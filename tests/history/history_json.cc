// The exchange format: README.md defines the fields.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "tests/history/history.h"

namespace rkv::history {
namespace {

using Json = nlohmann::ordered_json;

bool has_condition(Function f) {
  return f == Function::kPutIfVersion || f == Function::kRemoveIfVersion;
}
bool is_put(Function f) {
  return f == Function::kPut || f == Function::kPutIfAbsent || f == Function::kPutIfVersion;
}
// True if a completion's `value` is the content of the key.
bool tells_content(Function f) {
  return f == Function::kGet || f == Function::kIncr || f == Function::kCounterCas ||
         f == Function::kRestart;
}

// ----------------------------------------------------------------------------------- export

Json line_of(const Operation& op, const char* type, Nanos time) {
  return {{"process", op.process}, {"type", type},     {"f", to_string(op.call.f)},
          {"key", op.call.key},    {"value", nullptr}, {"version", nullptr},
          {"time", time}};
}

Json argument_of(const Call& call) {
  if (is_put(call.f)) return call.text;
  if (call.f == Function::kIncr) return call.number;
  if (call.f == Function::kCounterCas) return Json::array({call.expected, call.number});
  return nullptr;
}

Json value_of(const Content& content) {
  if (content.kind == Content::Kind::kAbsent) return nullptr;
  if (content.kind == Content::Kind::kText) return content.text;
  return content.number;
}

Json invoke_of(const Operation& op) {
  Json line = line_of(op, "invoke", op.invoked);
  line["value"] = argument_of(op.call);
  if (has_condition(op.call.f)) line["version"] = op.call.if_version;
  if (op.call.ttl.count() != 0) line["ttl_ms"] = op.call.ttl.count();
  return line;
}

Json completion_of(const Operation& op) {
  static constexpr const char* kTypes[] = {"ok", "fail", "info"};
  const Answer& answer = op.answer;
  Json line = line_of(op, kTypes[static_cast<int>(answer.outcome)], op.returned);
  const bool told = answer.outcome != Outcome::kInfo && tells_content(op.call.f);
  line["value"] = told ? value_of(answer.content) : argument_of(op.call);
  if (answer.version != 0) line["version"] = answer.version;
  if (answer.expires_at_ms != 0) line["expires_at_ms"] = answer.expires_at_ms;
  if (answer.error != Code{}) line["error"] = to_string(answer.error);
  if (op.answer.outcome == Outcome::kInfo && op.until != kForever) line["until"] = op.until;
  return line;
}

// ----------------------------------------------------------------------------------- import

Content content_from(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return Content::of(value.get<std::string>());
  return Content::of(value.get<std::int64_t>());
}

Function function_from(const Json& line) {
  const auto name = line.at("f").get<std::string>();
  for (int f = 0; f <= static_cast<int>(Function::kRestart); ++f) {
    if (name == to_string(static_cast<Function>(f))) return static_cast<Function>(f);
  }
  throw std::invalid_argument("no such function: " + name);
}

Code error_from(const Json& line) {
  if (!line.contains("error")) return Code{};
  const auto text = line.at("error").get<std::string>();
  for (int code = 1; code < 256; ++code) {
    if (text == to_string(static_cast<Code>(code))) return static_cast<Code>(code);
  }
  throw std::invalid_argument("no such error: " + text);
}

std::uint64_t version_from(const Json& line) {
  if (!line.contains("version") || line.at("version").is_null()) return 0;
  return line.at("version").get<std::uint64_t>();
}

Call call_from(const Json& line) {
  Call call{.f = function_from(line), .key = line.at("key").get<std::string>()};
  const Json& value = line.at("value");
  if (is_put(call.f)) call.text = value.get<std::string>();
  if (call.f == Function::kIncr) call.number = value.get<std::int64_t>();
  if (call.f == Function::kCounterCas) {
    call.expected = value.at(0).get<std::int64_t>();
    call.number = value.at(1).get<std::int64_t>();
  }
  if (has_condition(call.f)) call.if_version = version_from(line);
  call.ttl = std::chrono::milliseconds(line.value("ttl_ms", std::int64_t{0}));
  return call;
}

Answer answer_from(const Json& line, const Call& call) {
  const auto type = line.at("type").get<std::string>();
  Answer answer{.error = error_from(line)};
  if (type == "ok") {
    answer.outcome = Outcome::kOk;
  } else if (type == "fail") {
    answer.outcome = Outcome::kFail;
  } else if (type != "info") {
    throw std::invalid_argument("no such type: " + type);
  }
  if (answer.outcome != Outcome::kInfo && tells_content(call.f)) {
    answer.content = content_from(line.at("value"));
  }
  answer.version = version_from(line);
  answer.expires_at_ms = line.value("expires_at_ms", std::uint64_t{0});
  return answer;
}

class Reader {
 public:
  // Throws a description of the error in the line.
  void take(const Json& line) {
    const int process = line.at("process").get<int>();
    const Nanos time = line.at("time").get<Nanos>();
    if (time < now_) throw std::invalid_argument("time runs backwards");
    now_ = time;
    const auto open = open_.find(process);
    if (line.at("type") == "invoke") {
      if (open != open_.end()) {
        throw std::invalid_argument(
            "this process has an operation under way, or one that ended "
            "with info");
      }
      open_[process] = history_.size();
      history_.push_back({.process = process, .call = call_from(line), .invoked = time});
      return;
    }
    if (open == open_.end()) throw std::invalid_argument("this process has invoked nothing");
    Operation& op = history_[open->second];
    if (op.returned != kForever) throw std::invalid_argument("this process has ended with info");
    if (function_from(line) != op.call.f || line.at("key") != op.call.key) {
      throw std::invalid_argument("this process has invoked something else");
    }
    op.answer = answer_from(line, op.call);
    op.returned = time;
    if (op.answer.outcome != Outcome::kInfo) open_.erase(open);
    if (op.answer.outcome == Outcome::kInfo) op.until = line.value("until", kForever);
  }
  History history() { return std::move(history_); }

 private:
  History history_;
  std::map<int, std::size_t> open_;
  Nanos now_ = std::numeric_limits<Nanos>::min();
};

}  // namespace

void export_history(std::ostream& out, const History& history) {
  struct Event {
    Nanos time;
    bool completes;  // completions follow invokes of the same instant: touching operations overlap
    const Operation* op;
  };
  std::vector<Event> events;
  for (const Operation& op : history) {
    events.push_back({op.invoked, false, &op});
    if (op.returned != kForever) events.push_back({op.returned, true, &op});
  }
  std::ranges::stable_sort(
      events, {}, [](const Event& event) { return std::pair(event.time, event.completes); });
  for (const Event& event : events)
    out << (event.completes ? completion_of(*event.op) : invoke_of(*event.op)).dump() << "\n";
}

Result<History> import_history(std::istream& in, std::string* complaint) {
  Reader reader;
  std::string text;
  // The JSON library throws; no exception leaves this function.
  for (int number = 1; std::getline(in, text); ++number) {
    try {
      reader.take(Json::parse(text));
    } catch (const std::exception& wrong) {
      *complaint = fmt::format("line {}: {}", number, wrong.what());
      return fail(Code::kCorrupt, "not a history: see the line named");
    }
  }
  return reader.history();
}

Status export_to(const std::string& path, const History& history) {
  std::ofstream out(path);
  export_history(out, history);
  out.close();
  if (!out) return fail(Code::kIo, "cannot write the history");
  return {};
}

Result<History> import_from(const std::string& path, std::string* complaint) {
  std::ifstream in(path);
  if (!in) return fail(Code::kIo, "cannot open the history");
  return import_history(in, complaint);
}

}  // namespace rkv::history
