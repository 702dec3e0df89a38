// What clients asked and were told, as data: the form that checker.h judges and that is exported.
//
// The exchange format is JSON lines in the order of time, for checkers outside of this project too
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
  kIncr,  // decr too: by a negative number
  kCounterCas,
  // Of a one-sided counter: an incr by 0 that tells neither number nor version, and that may leave
  // the counter's version as it is or not.
  kOpenCounter,
  // No operation of a client: the server died and started again with this content of the key, which
  // may be an earlier one.
  kRestart,
};
const char* to_string(Function f);

enum class Outcome : std::uint8_t {
  kOk,    // it was done
  kFail,  // it certainly was not done
  kInfo,  // it may have been done, at any time since the call
};

// What is under a key: nothing, text or a counter's number.
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
  std::string text = {};         // what a put writes
  std::int64_t number = 0;       // incr: to add; counter_cas: desired
  std::int64_t expected = 0;     // counter_cas
  std::uint64_t if_version = 0;  // put_if_version, remove_if_version
  std::chrono::milliseconds ttl{0};
};

struct Answer {
  Outcome outcome = Outcome::kInfo;
  Code error{};                     // kFail; kInfo: what the client said
  Content content = {};             // get, restart; incr, counter_cas (conflict, too): the number
  std::uint64_t version = 0;        // 0 = not told
  std::uint64_t expires_at_ms = 0;  // get: 0 = never
};

struct Operation {
  int process = 0;
  Call call = {};
  Answer answer = {};
  Nanos invoked = 0;
  Nanos returned = kForever;  // kForever: nobody was told anything
  Nanos until = kForever;     // kInfo: if it has not happened by now it never will

  // The latest instant at which it can have happened.
  Nanos end() const { return answer.outcome == Outcome::kInfo ? until : returned; }
};
using History = std::vector<Operation>;

bool is_write(Function f);
// Whether an answer is about the key's state at some instant of the call: it was carried out, or
// the state is why not (not found, conflict, wrong type, out of range).
bool tells(const Answer& answer);

// In the order of their calls.
History merge(std::span<const History* const> parts);

// Keys and texts must be UTF-8.
void export_history(std::ostream& out, const History& history);
// What export_history (or another recorder) wrote, in the order of the calls. kCorrupt: `complaint`
// names the line and what is wrong with it.
Result<History> import_history(std::istream& in, std::string* complaint);
// The same with files. kIo.
Status export_to(const std::string& path, const History& history);
Result<History> import_from(const std::string& path, std::string* complaint);

// One operation on one line, for people: put "v" ttl 30 ms -> ok version 9.
std::string describe(const Operation& operation);

}  // namespace rkv::history
