#include "client/cli/verb_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "common/parse.h"

namespace rkv::cli {

namespace {

bool is_of(const Option<Command>& option, Verb verb) {
  return (option.verbs >> static_cast<unsigned>(verb) & 1U) != 0;
}

template <class... Verbs>
constexpr std::uint32_t of(Verbs... verbs) {
  return ((std::uint32_t{1} << static_cast<unsigned>(verbs)) | ...);
}

template <auto kMember, std::uint64_t most>
std::string set_number(Command& command, std::string_view name, const std::string& text) {
  const auto number = parse_number<std::uint64_t>(text, 1, most);
  if (!number) return needs(name, fmt::format("a number from 1 to {}", most), text);
  command.*kMember = static_cast<std::remove_reference_t<decltype(command.*kMember)>>(*number);
  return {};
}
constexpr auto* set_count = set_number<&Command::count, 1'000'000'000>;

template <bool Command::* kMember>
std::string set_true(Command& command, std::string_view /*name*/, const std::string& /*text*/) {
  command.*kMember = true;
  return {};
}

template <std::string Command::Range::* kMember>
std::string set_bound(Command& command, std::string_view /*name*/, const std::string& text) {
  command.range.*kMember = text;
  return {};
}

std::string set_format(Command& command, std::string_view name, const std::string& text) {
  command.format = text == "deb822"  ? Format::kDeb822
                   : text == "tsv"   ? Format::kTsv
                   : text == "jsonl" ? Format::kJsonl
                                     : Format::kAuto;
  if (command.verb == Verb::kDump && command.format == Format::kDeb822)
    return "dump writes tsv or jsonl";
  if (command.format != Format::kAuto || text == "auto") return {};
  return needs(name, "deb822, tsv or jsonl", text);
}

std::string set_durability(Command& command, std::string_view name, const std::string& text) {
  const auto level = parse_durability(text);
  command.put.durability = level.value_or(Durability::kDefault);
  return level ? "" : needs(name, "memory, wal or sync", text);
}

std::string set_durable(Command& command, std::string_view name, const std::string& text) {
  command.get.at_least = parse_durability(text).value_or(Durability::kMemory);
  return command.get.at_least != Durability::kMemory ? "" : needs(name, "sync or wal", text);
}

std::string set_if_absent(Command& command, std::string_view /*name*/, const std::string& /*t*/) {
  command.put.if_absent = true;
  return {};
}

std::string set_if_version(Command& command, std::string_view name, const std::string& text) {
  command.put.if_version = command.if_version = parse_number<std::uint64_t>(text);
  if (!command.if_version) return needs(name, "a number", text);
  return command.put.if_absent ? "--if-absent and --if-version exclude each other" : "";
}

std::string set_ttl(Command& command, std::string_view name, const std::string& text) {
  return set_duration(command.put.ttl, name, text);
}

std::string set_keys_file(Command& command, std::string_view /*name*/, const std::string& text) {
  command.keys_file = text;
  return text.empty() ? "--keys needs a file" : "";
}

std::string set_watch(Command& command, std::string_view name, const std::string& text) {
  command.watch = true;
  command.count = 0;
  return set_duration(command.interval, name, text);
}

std::string set_watch_count(Command& command, std::string_view name, const std::string& text) {
  return command.watch ? set_count(command, name, text) : "--count needs --watch";
}

std::string set_time(Command& command, std::string_view name, const std::string& text) {
  std::string problem = set_duration(command.interval, name, text);
  const bool is_long = problem.empty() && command.interval > std::chrono::minutes(5);
  return is_long ? "--time is at most 5m" : problem;
}

using enum Verb;
constexpr std::uint32_t kWriters = of(kPut, kDel, kTouch, kIncr, kDecr, kCas, kLoad);
constexpr std::uint32_t kOfRecords = of(kLoad, kVerify, kDump);
using Range = Command::Range;

// In the order of each verb's help, in which they are also set: --watch is set before its --count.
constexpr Option<Command> kVerbOptions[] = {
    {"durability", 0, "LEVEL",
     "memory, wal or sync: durability before the reply; default: the server's", set_durability,
     kWriters},
    {"if-absent", 0, "", "only if the key does not exist", set_if_absent, of(kPut)},
    {"ttl", 0, "TIME", "time to live of the key, such as 500ms or 2h", set_ttl, of(kPut)},
    {"if-version", 0, "N", "only if the key has this version", set_if_version,
     of(kPut, kDel, kTouch)},
    {"stdin", 'x', "", "read the last argument from standard input, to its end",
     set_true<&Command::last_from_stdin>, of(kPut, kDel, kGet)},
    {"durable", 0, "sync|wal",
     "wait until the value is on disk (sync) or in the write-ahead log (wal)", set_durable,
     of(kGet, kMget), "sync"},
    {"verify", 0, "", "then read every record back by RDMA READ and compare",
     set_true<&Command::verify>, of(kLoad)},
    {"sequential", 0, "", "one GET at a time; prints the latencies", set_true<&Command::sequential>,
     of(kVerify)},
    {"skip-bad", 0, "", "skip bad records instead of stopping", set_true<&Command::skip_bad>,
     of(kLoad, kVerify)},
    {"keys", 0, "FILE", "only these keys, one per line; -: standard input", set_keys_file,
     of(kDump)},
    {"format", 0, "NAME", "deb822, tsv or jsonl; default: detected from the first line", set_format,
     kOfRecords},
    {"prefix", 0, "P", "keys that begin with P", set_bound<&Range::prefix>, of(kScan)},
    {"start", 0, "KEY", "keys at or above KEY", set_bound<&Range::start>, of(kScan)},
    {"end", 0, "KEY", "keys below KEY", set_bound<&Range::end>, of(kScan)},
    {"limit", 0, "N", "maximum number of entries", set_number<&Command::limit, UINT32_MAX>,
     of(kScan)},
    {"token", 0, "HEX", "token that a scan with --limit printed: continue after it",
     set_bound<&Range::token>, of(kScan)},
    {"reverse", 0, "", "in descending order", set_true<&Command::reverse>, of(kScan)},
    {"keys-only", 0, "", "print keys without values", set_true<&Command::keys_only>, of(kScan)},
    {"progress", 0, "", "print progress on standard error even if it is not a terminal",
     set_true<&Command::progress>, kOfRecords | of(kScan, kBackup)},
    {"count", 'c', "N", "repeat N times and print the last result", set_count, of(kIncr, kDecr)},
    {"one-sided", 0, "", "use an RDMA atomic; a server crash may lose the change",
     set_true<&Command::one_sided>, of(kIncr, kDecr, kCas)},
    {"watch", 0, "TIME", "print a line each TIME (1s), with what each server does in a second",
     set_watch, of(kStats), "1s"},
    {"count", 'c', "N", "end --watch after N times", set_watch_count, of(kStats)},
    {"count", 'c', "N", "number of round trips", set_count, of(kPing)},
    {"alive", 0, "", "for health checks: a server that only asks for a user is well, too",
     set_true<&Command::alive>, of(kPing)},
    {"time", 0, "TIME", "length of each measurement; default: 1s", set_time, of(kBench)},
    {"keys", 0, "N", "number of keys; default: 10000", set_number<&Command::keys, 10'000'000>,
     of(kBench)},
    {"value-bytes", 0, "N", "length of a value; default: 100",
     set_number<&Command::value_bytes, 64 << 10>, of(kBench)},
};

}  // namespace

void add_verb_options(cxxopts::Options& options, Verb verb) {
  auto add = options.add_options();
  for (const auto& option : kVerbOptions) {
    if (is_of(option, verb)) option.add_to(add, std::string(option.help));
  }
}

bool takes_value(Verb verb, std::string_view word) {
  return std::ranges::any_of(kVerbOptions, [&](const auto& option) {
    return is_of(option, verb) && option.takes_value() && option.is(word);
  });
}

std::string needs(std::string_view name, std::string_view what, const std::string& text) {
  return fmt::format("--{} needs {}, not '{}'", name, what, shown(text));
}

std::string set_duration(std::chrono::milliseconds& target, std::string_view name,
                         const std::string& text) {
  const auto parsed = parse_duration_ms(text);
  if (parsed && *parsed != 0) {
    target = std::chrono::milliseconds(*parsed);
    return {};
  }
  // True for a text that would be a time with another number.
  const std::size_t unit = text.find_first_not_of("0123456789");
  const bool digits = unit != 0 && unit != std::string::npos;
  const bool is_long = !parsed && digits && parse_duration_ms("1" + text.substr(unit));
  return needs(
      name, is_long ? "a time of at most 366d" : "a time above zero such as 250ms, 5s or 2h", text);
}

std::string set_verb_options(Command& command, const cxxopts::ParseResult& result) {
  for (const auto& option : kVerbOptions) {
    const std::string name(option.name);
    if (!is_of(option, command.verb) || result.count(name) == 0) continue;
    const std::string text = option.takes_value() ? result[name].as<std::string>() : "";
    if (std::string problem = option.apply(command, name, text); !problem.empty()) return problem;
  }
  return {};
}

}  // namespace rkv::cli
