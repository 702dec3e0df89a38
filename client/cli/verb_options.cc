#include "client/cli/verb_options.h"

#include <fmt/format.h>

#include "common/parse.h"

namespace rkv::cli {

namespace {

void add_format(cxxopts::Options& options) {
  options.add_options()("format", "deb822, tsv or jsonl; default: detected from the first line",
                        cxxopts::value<std::string>(), "NAME");
}

void add_progress(cxxopts::Options& options) {
  options.add_options()("progress",
                        "print progress on standard error even if it is not a terminal");
}

void add_range(cxxopts::Options& options) {
  auto add = options.add_options();
  add("prefix", "keys that begin with P", cxxopts::value<std::string>(), "P");
  add("start", "keys at or above KEY", cxxopts::value<std::string>(), "KEY");
  add("end", "keys below KEY", cxxopts::value<std::string>(), "KEY");
  add("limit", "maximum number of entries", cxxopts::value<std::string>(), "N");
  add("token", "token that a scan with --limit printed: continue after it",
      cxxopts::value<std::string>(), "HEX");
  add("reverse", "in descending order");
  add("keys-only", "print keys without values");
}

void add_watch(cxxopts::Options& options) {
  auto add = options.add_options();
  add("watch", "print a line each TIME (1s), with what each server does in a second",
      cxxopts::value<std::string>()->implicit_value("1s"), "TIME");
  add("c,count", "end --watch after N times", cxxopts::value<std::string>(), "N");
}

void add_bench(cxxopts::Options& options) {
  auto add = options.add_options();
  add("time", "length of each measurement; default: 1s", cxxopts::value<std::string>(), "TIME");
  add("keys", "number of keys; default: 10000", cxxopts::value<std::string>(), "N");
  add("value-bytes", "length of a value; default: 100", cxxopts::value<std::string>(), "N");
}

bool writes(Verb verb) {
  return verb == Verb::kPut || verb == Verb::kDel || verb == Verb::kIncr || verb == Verb::kDecr ||
         verb == Verb::kCas || verb == Verb::kLoad;
}

std::string set_format(const std::string& text, Verb verb, Format& format) {
  format = text == "deb822"  ? Format::kDeb822
           : text == "tsv"   ? Format::kTsv
           : text == "jsonl" ? Format::kJsonl
                             : Format::kAuto;
  if (verb == Verb::kDump && format == Format::kDeb822) return "dump writes tsv or jsonl";
  if (format != Format::kAuto || text == "auto") return {};
  return fmt::format("--format needs deb822, tsv or jsonl, not '{}'", shown(text));
}

std::string set_durability(Command& command, const std::string& text) {
  const auto level = parse_durability(text);
  command.put.durability = level.value_or(Durability::kDefault);
  return level ? "" : fmt::format("--durability needs memory, wal or sync, not '{}'", shown(text));
}

std::string set_durable(Command& command, const std::string& text) {
  command.get.at_least = parse_durability(text).value_or(Durability::kMemory);
  if (command.get.at_least != Durability::kMemory) return {};
  return fmt::format("--durable needs sync or wal, not '{}'", shown(text));
}

std::string set_if_version(Command& command, const std::string& text) {
  command.if_version = parse_number<std::uint64_t>(text, 0, UINT64_MAX);
  command.put.if_version = command.if_version;
  return command.if_version ? ""
                            : fmt::format("--if-version needs a number, not '{}'", shown(text));
}

std::string set_count(Command& command, const std::string& text) {
  constexpr std::uint64_t kMost = 1'000'000'000;
  const auto count = parse_number<std::uint64_t>(text, 1, kMost);
  command.count = count.value_or(1);
  return count ? ""
               : fmt::format("--count needs a number from 1 to {}, not '{}'", kMost, shown(text));
}

std::string set_range(Command& command, const cxxopts::ParseResult& result) {
  const auto text = [&](const char* name) {
    return result.count(name) != 0 ? result[name].as<std::string>() : std::string();
  };
  command.range = {
      .prefix = text("prefix"), .start = text("start"), .end = text("end"), .token = text("token")};
  command.reverse = result.count("reverse") != 0;
  command.keys_only = result.count("keys-only") != 0;
  if (result.count("limit") == 0) return {};
  const auto limit = parse_number<std::uint32_t>(text("limit"), 1, UINT32_MAX);
  command.limit = limit.value_or(0);
  if (limit) return {};
  return fmt::format("--limit needs a number from 1 to {}, not '{}'", UINT32_MAX,
                     shown(text("limit")));
}

std::string set_interval(Command& command, const char* name, const std::string& text) {
  std::uint64_t ms = 0;
  std::string problem = set_duration(name, text, ms);
  command.interval = std::chrono::milliseconds(ms);
  return problem;
}

std::string set_watch(Command& command, const cxxopts::ParseResult& result) {
  command.watch = result.count("watch") != 0;
  if (!command.watch) return result.count("count") == 0 ? "" : "--count needs --watch";
  command.count = 0;
  if (result.count("count") != 0) {
    std::string problem = set_count(command, result["count"].as<std::string>());
    if (!problem.empty()) return problem;
  }
  return set_interval(command, "watch", result["watch"].as<std::string>());
}

std::string set_bench(Command& command, const cxxopts::ParseResult& result) {
  constexpr std::uint64_t kMostKeys = 10'000'000;
  constexpr std::uint64_t kMostBytes = 64 << 10;
  const auto text = [&](const char* name, const char* fallback) {
    return result.count(name) != 0 ? result[name].as<std::string>() : std::string(fallback);
  };
  const auto number = [&](const char* name, const char* fallback, std::uint64_t most,
                          std::string& problem) {
    const std::string given = text(name, fallback);
    const auto parsed = parse_number<std::uint64_t>(given, 1, most);
    if (!parsed)
      problem = fmt::format("--{} needs a number from 1 to {}, not '{}'", name, most, shown(given));
    return parsed.value_or(1);
  };
  constexpr std::chrono::minutes kLongest{5};
  std::string problem = set_interval(command, "time", text("time", "1s"));
  if (problem.empty() && command.interval > kLongest) problem = "--time is at most 5m";
  if (problem.empty()) command.keys = number("keys", "10000", kMostKeys, problem);
  if (problem.empty()) command.value_bytes = number("value-bytes", "100", kMostBytes, problem);
  return problem;
}

}  // namespace

void add_verb_options(cxxopts::Options& options, Verb verb) {
  auto add = options.add_options();
  if (writes(verb)) {
    add("durability", "memory, wal or sync: durability before the reply; default: the server's",
        cxxopts::value<std::string>(), "LEVEL");
  }
  switch (verb) {
    case Verb::kPut:
      add("if-absent", "only if the key does not exist");
      add("ttl", "time to live of the key, such as 500ms or 2h", cxxopts::value<std::string>(),
          "TIME");
      [[fallthrough]];
    case Verb::kDel:
      add("if-version", "only if the key has this version", cxxopts::value<std::string>(), "N");
      [[fallthrough]];
    case Verb::kGet:
      add("x,stdin", "read the last argument from standard input, to its end");
      [[fallthrough]];
    case Verb::kMget:
      if (verb == Verb::kGet || verb == Verb::kMget) {
        add("durable", "wait until the value is on disk (sync) or in the write-ahead log (wal)",
            cxxopts::value<std::string>()->implicit_value("sync"), "sync|wal");
      }
      break;
    case Verb::kLoad:
      add("verify", "then read every record back by RDMA READ and compare");
      add("skip-bad", "skip bad records instead of stopping");
      add_format(options);
      add_progress(options);
      break;
    case Verb::kVerify:
      add("sequential", "one GET at a time; prints the latencies");
      add("skip-bad", "skip bad records instead of stopping");
      add_format(options);
      add_progress(options);
      break;
    case Verb::kDump:
      add("keys", "only these keys, one per line; -: standard input", cxxopts::value<std::string>(),
          "FILE");
      add_format(options);
      add_progress(options);
      break;
    case Verb::kScan:
      add_range(options);
      add_progress(options);
      break;
    case Verb::kIncr:
    case Verb::kDecr:
      add("c,count", "repeat N times and print the last result", cxxopts::value<std::string>(),
          "N");
      [[fallthrough]];
    case Verb::kCas:
      add("one-sided", "use an RDMA atomic; a server crash may lose the change");
      break;
    case Verb::kBackup:
      add_progress(options);
      break;
    case Verb::kStats:
      add_watch(options);
      break;
    case Verb::kPing:
      add("c,count", "number of round trips", cxxopts::value<std::string>(), "N");
      break;
    case Verb::kBench:
      add_bench(options);
      break;
    default:
      break;
  }
}

std::string set_duration(std::string_view name, const std::string& text, std::uint64_t& ms) {
  const auto parsed = parse_duration_ms(text);
  if (parsed && *parsed != 0) {
    ms = *parsed;
    return {};
  }
  // True for a text that would be a time with another number.
  const std::size_t unit = text.find_first_not_of("0123456789");
  const bool digits = unit != 0 && unit != std::string::npos;
  if (!parsed && digits && parse_duration_ms("1" + text.substr(unit))) {
    return fmt::format("--{} needs a time of at most 366d, not '{}'", name, shown(text));
  }
  return fmt::format("--{} needs a time above zero such as 250ms, 5s or 2h, not '{}'", name,
                     shown(text));
}

std::string set_verb_options(Command& command, const cxxopts::ParseResult& result) {
  const auto has = [&](const char* name) { return result.count(name) != 0; };
  const auto text = [&](const char* name) { return result[name].as<std::string>(); };
  std::string problem;
  command.progress = result.count("progress") != 0;
  if (writes(command.verb) && has("durability")) {
    problem = set_durability(command, text("durability"));
    if (!problem.empty()) return problem;
  }
  if (has("format")) {
    problem = set_format(text("format"), command.verb, command.format);
    if (!problem.empty()) return problem;
  }
  switch (command.verb) {
    case Verb::kPut:
      command.put.if_absent = has("if-absent");
      if (has("ttl")) {
        std::uint64_t ms = 0;
        problem = set_duration("ttl", text("ttl"), ms);
        command.put.ttl = std::chrono::milliseconds(ms);
      }
      [[fallthrough]];
    case Verb::kDel:
      if (has("if-version")) problem = set_if_version(command, text("if-version"));
      if (command.put.if_absent && command.put.if_version) {
        problem = "--if-absent and --if-version exclude each other";
      }
      [[fallthrough]];
    case Verb::kGet:
      command.last_from_stdin = has("stdin");
      [[fallthrough]];
    case Verb::kMget:
      if ((command.verb == Verb::kGet || command.verb == Verb::kMget) && has("durable")) {
        problem = set_durable(command, text("durable"));
      }
      break;
    case Verb::kLoad:
      command.verify = has("verify");
      command.skip_bad = has("skip-bad");
      break;
    case Verb::kVerify:
      command.sequential = has("sequential");
      command.skip_bad = has("skip-bad");
      break;
    case Verb::kDump:
      if (has("keys")) command.keys_file = text("keys");
      if (has("keys") && command.keys_file.empty()) problem = "--keys needs a file";
      break;
    case Verb::kScan:
      problem = set_range(command, result);
      break;
    case Verb::kStats:
      problem = set_watch(command, result);
      break;
    case Verb::kBench:
      problem = set_bench(command, result);
      break;
    case Verb::kIncr:
    case Verb::kDecr:
    case Verb::kCas:
      command.one_sided = has("one-sided");
      if (command.verb == Verb::kCas) break;
      [[fallthrough]];
    case Verb::kPing:
      if (has("count")) problem = set_count(command, text("count"));
      break;
    default:
      break;
  }
  return problem;
}

}  // namespace rkv::cli
