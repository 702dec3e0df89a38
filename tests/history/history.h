// The requests of clients and their answers as data: checker.h judges this form, and it can be
// exported.
//
// The exchange format is JSON lines in the order of time, also for checkers outside of this project
// (README.md lists all fields):
//
//   {"process":3,"type":"invoke","f":"put","key":"k","value":"v","version":null,"time":171}
//   {"process":3,"type":"ok","f":"put","key":"k","value":"v","version":9,"time":202}
//
// Thread safety: values.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "rkv/result.h"

namespace rkv::history {

inline constexpr Nanos kForever = std::numeric_limits<Nanos>::max();

enum class Function : std::uint8_t {
  kGet,
  kPut,
  kPutIfAbsent,
  kPutIfVersion,
  kRemove,
  kRemoveIfVersion,
  kTouch,  // another time to live; the content stays
  kIncr,   // also decr: by a negative number
  kCounterCas,
  // For a one-sided counter: an incr by 0 that returns neither number nor version, and that may
  // change the counter's version or not.
  kOpenCounter,
  // Not an operation of a client: the server died and started again with this content of the key,
  // which may be an earlier content.
  kRestart,
};
const char* to_string(Function f);

enum class Outcome : std::uint8_t {
  kOk,    // it was done
  kFail,  // it certainly was not done
  kInfo,  // it may have been done, at any time since the call
};

// The content of a key: nothing, text or a counter's number.
struct Content {
  enum class Kind : std::uint8_t { kAbsent, kText, kNumber };
  Kind kind = Kind::kAbsent;
  std::string text = {};
  std::int64_t number = 0;

  static Content of(std::string text) { return {.kind = Kind::kText, .text = std::move(text)}; }
  static Content of(std::int64_t number) { return {.kind = Kind::kNumber, .number = number}; }
  bool operator==(const Content&) const = default;
};

struct Call {
  Function f = Function::kGet;
  std::string key = {};
  std::string text = {};         // the text of a put
  std::int64_t number = 0;       // incr: the summand; counter_cas: desired
  std::int64_t expected = 0;     // counter_cas
  std::uint64_t if_version = 0;  // put_if_version, remove_if_version
  std::chrono::milliseconds ttl{0};
};

struct Answer {
  Outcome outcome = Outcome::kInfo;
  Code error{};               // kFail; kInfo: the client's error
  Content content = {};       // get, restart; incr, counter_cas (also with conflict): the number
  std::uint64_t version = 0;  // 0 = not reported
  std::uint64_t expires_at_ms = 0;  // get: 0 = never
};

struct Operation {
  int process = 0;
  Call call = {};
  Answer answer = {};
  Nanos invoked = 0;
  Nanos returned = kForever;  // kForever: no completion
  Nanos until = kForever;     // kInfo: if it has not happened by then it never will

  // The latest instant at which it can have happened.
  Nanos end() const { return answer.outcome == Outcome::kInfo ? until : returned; }
};
using History = std::vector<Operation>;

bool is_write(Function f);
// True if the answer describes the key's state at some instant of the call: the operation was done,
// or the state was the reason for its refusal (not found, conflict, wrong type, out of range).
bool tells(const Answer& answer);

// In the order of the calls.
History merge(std::span<const History* const> parts);

// Keys and texts must be UTF-8.
void export_history(std::ostream& out, const History& history);
// Reads the format of export_history (or of another recorder); returns the operations in the order
// of their calls. kCorrupt: `complaint` names the line and the reason.
Result<History> import_history(std::istream& in, std::string* complaint);
// The same for files. kIo.
Status export_to(const std::string& path, const History& history);
Result<History> import_from(const std::string& path, std::string* complaint);

// One operation on one line, for people: put "v" ttl 30 ms -> ok version 9.
std::string describe(const Operation& operation);

}  // namespace rkv::history
