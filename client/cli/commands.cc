#include "client/cli/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "client/cli/admin.h"
#include "client/cli/doctor.h"
#include "client/cli/many.h"
#include "client/cli/output.h"
#include "client/cli/text.h"
#include "common/auth/proof.h"
#include "common/bytes.h"
#include "common/parse.h"
#include "common/standard_streams.h"
#include "rkv/limits.h"

namespace rkv::cli {

namespace {

// ---------------------------------------------------------------------------------- preparing

OrFailure<std::string> decode_argument(const std::string& text, bool hex) {
  if (!hex) return text;
  auto bytes = from_hex(text);
  if (!bytes) return failure(kUsage, fmt::format("'{}' is not hexadecimal", rkv::shown(text)));
  return std::move(*bytes);
}

OrFailure<void> check_arguments(const Job& job) {
  const Verb verb = job.command.verb;
  for (std::size_t i = 0; i < job.arguments.size(); ++i) {
    const bool is_value = verb == Verb::kPut && i == 1;
    const std::string problem =
        is_value ? value_problem(job.arguments[i]) : key_problem(job.arguments[i]);
    if (!problem.empty()) return failure(kUsage, problem);
  }
  return {};
}

OrFailure<void> prepare_arguments(Job& job) {
  for (const std::string& text : job.command.arguments) {
    auto decoded = decode_argument(text, job.command.globals.hex);
    if (!decoded) return std::unexpected(decoded.error());
    job.arguments.push_back(std::move(*decoded));
  }
  if (job.command.last_from_stdin) {
    const bool hex = job.command.globals.hex;
    auto text = read_value(hex ? 2 * kMaxValueBytes + 1 : kMaxValueBytes);
    if (!text) return std::unexpected(text.error());
    // Hex is typed or piped as a line, so a line end is removed; raw bytes are taken as they are.
    if (hex && text->ends_with('\n')) text->pop_back();
    auto decoded = decode_argument(*text, hex);
    if (!decoded) return failure(kUsage, "standard input is not hexadecimal");
    job.arguments.push_back(std::move(*decoded));
  }
  return check_arguments(job);
}

// Takes the key, then numbers.
OrFailure<void> prepare_counter(Job& job) {
  std::vector<std::string>& words = job.command.arguments;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto number = parse_number<std::int64_t>(words[i]);
    if (!number) {
      return failure(kUsage,
                     fmt::format("'{}' is not a whole number of 64 bits", rkv::shown(words[i])));
    }
    job.numbers.push_back(*number);
  }
  words.resize(1);
  return prepare_arguments(job);
}

// Takes the key, then the time.
OrFailure<void> prepare_touch(Job& job) {
  const std::string time = job.command.arguments.back();
  if (time != "none") {
    const auto parsed = parse_duration_ms(time);
    if (!parsed || *parsed == 0) {
      return failure(kUsage,
                     fmt::format("touch needs a time from 1ms to 366d, such as 5s or 2h, or "
                                 "none; not '{}'",
                                 rkv::shown(time)));
    }
    job.command.put.ttl = std::chrono::milliseconds(*parsed);
  }
  job.command.put.keep_value = true;
  job.command.arguments.pop_back();
  return prepare_arguments(job);
}

OrFailure<void> prepare_records(Job& job) {
  const Command& command = job.command;
  const std::string path = command.arguments.empty() ? "-" : command.arguments.front();
  RecordOptions options{.format = command.format, .hex = command.globals.hex, .on_bad = {}};
  if (command.skip_bad) options.on_bad = [](const std::string& sentence) { complain(sentence); };
  if (command.verb == Verb::kLoad && !command.verify) {
    // Reads one part at a time. Mistakes in the first part are reported before connecting.
    auto reader = RecordReader::open(path, options);
    if (!reader) return std::unexpected(reader.error());
    auto first = reader->next();
    if (!first) return std::unexpected(first.error());
    job.records = std::move(*first);
    job.reader = std::move(*reader);
    return {};
  }
  auto text = read_file(path);
  if (!text) return std::unexpected(text.error());
  auto records = parse_records(std::move(*text), path == "-" ? "standard input" : path, options);
  if (!records) return std::unexpected(records.error());
  job.records = std::move(*records);
  return {};
}

OrFailure<void> prepare_keys(Job& job) {
  if (job.command.keys_file.empty()) return {};
  auto text = read_file(job.command.keys_file, 4 * kMaxKeyBytes + 1);  // escapes, and a CR
  if (!text) return std::unexpected(text.error());
  auto keys = parse_keys(*text, job.command.keys_file, job.command.globals.hex);
  if (!keys) return std::unexpected(keys.error());
  job.arguments = std::move(*keys);
  return {};
}

// Decodes prefix and bounds, which are in hex if keys are.
OrFailure<void> prepare_range(Job& job) {
  Command::Range& range = job.command.range;
  for (std::string* const text : {&range.prefix, &range.start, &range.end}) {
    auto decoded = decode_argument(*text, job.command.globals.hex);
    if (!decoded) return std::unexpected(decoded.error());
    *text = std::move(*decoded);
    if (!text->empty() && !key_problem(*text).empty()) {
      return failure(kUsage, "--prefix, --start and --end are limited to 1024 bytes");
    }
  }
  auto token = from_hex(range.token);
  if (!token) {
    return failure(kUsage, fmt::format("--token needs the token that a scan printed, not '{}'",
                                       rkv::shown(range.token)));
  }
  range.token = std::move(*token);
  return {};
}

// ------------------------------------------------------------------------------------- running

Json found_json(std::string_view key, const Result<Value>& value, bool hex) {
  Json object;
  set_bytes(object, "key", key, hex);
  object["found"] = value.has_value();
  if (!value) {
    if (value.error().code != Code::kNotFound) object["error"] = to_string(value.error());
    return object;
  }
  if (value->is_counter) {
    object["counter"] = load_le<std::int64_t>(as_bytes(value->value).data());
  } else {
    set_bytes(object, "value", value->value, hex);
  }
  object["version"] = value->version;
  object["durability"] = to_string(value->durability);
  if (value->expires_at_ms != 0) object["expires_at_ms"] = value->expires_at_ms;
  return object;
}

ExitCode run_get(Cluster& client, Job& job) {
  const Globals& globals = job.command.globals;
  const std::string& key = job.arguments.front();
  const auto value = client.get(key, job.command.get);
  if (!value && (!globals.json || value.error().code != Code::kNotFound)) {
    return fail_with(value.error(), client);
  }
  if (globals.json) {
    print_json(found_json(key, value, globals.hex));
    return value ? kDone : kNotFoundExit;
  }
  if (globals.tsv) {
    print_raw(to_tsv(record_of(key, *value), globals.hex));
    return kDone;
  }
  if (value->is_counter || globals.hex) {
    print_raw((value->is_counter ? shown_value(*value) : to_hex(value->value)) + "\n");
    return kDone;
  }
  // Raw, so that a file is restored as it was. The line end is for a terminal, and parts the values
  // of a script.
  print_raw(value->value);
  const bool wants_line_end = stdout_is_terminal() || job.of_script;
  if (wants_line_end && !value->value.ends_with('\n')) print_raw("\n");
  return kDone;
}

ExitCode run_mget(Cluster& client, Job& job) {
  const Globals& globals = job.command.globals;
  const std::vector<std::string_view> keys(job.arguments.begin(), job.arguments.end());
  const auto values = client.multi_get(keys, job.command.get);
  ExitCode worst = kDone;
  Json array = Json::array();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!values[i]) worst = std::max(worst, exit_code_of(values[i].error()));
    if (globals.json) {
      array.push_back(found_json(keys[i], values[i], globals.hex));
      continue;
    }
    const auto show = globals.hex ? to_hex : escape_tsv;
    if (values[i] && globals.tsv) {
      print_raw(to_tsv(record_of(keys[i], *values[i]), globals.hex));
    } else if (values[i]) {
      print_raw(
          fmt::format("{}\t{}\n", show(keys[i]),
                      values[i]->is_counter ? shown_value(*values[i]) : show(values[i]->value)));
    } else {
      const Error& error = values[i].error();
      const bool answered = error.code == Code::kNotFound;
      complain(fmt::format("{}: {}{}", show(keys[i]),
                           answered ? "" : server_prefix(client, keys[i]), to_string(error)));
    }
  }
  if (globals.json) print_json(array);
  return worst;
}

// Reports a PUT or DELETE: silent for programs, a word for a person, the version in JSON.
ExitCode report_write(const Result<std::uint64_t>& version, Cluster& client, const Job& job,
                      bool interactive) {
  const Globals& globals = job.command.globals;
  const bool missing = !version && version.error().code == Code::kNotFound;
  if (!version && !(missing && globals.json)) return fail_with(version.error(), client);
  if (globals.json) {
    Json object;
    set_bytes(object, "key", job.arguments.front(), globals.hex);
    if (job.command.verb != Verb::kPut) object["found"] = !missing;
    if (version) object["version"] = *version;
    print_json(object);
  } else if (interactive) {
    print_raw("ok\n");
  }
  return missing ? kNotFoundExit : kDone;
}

ExitCode run_put(Cluster& client, Job& job, bool interactive) {
  return report_write(client.put_with(job.arguments[0], job.arguments[1], job.command.put), client,
                      job, interactive);
}

ExitCode run_touch(Cluster& client, const Job& job, bool interactive) {
  return report_write(client.put_with(job.arguments.front(), {}, job.command.put), client, job,
                      interactive);
}

ExitCode run_del(Cluster& client, const Job& job, bool interactive) {
  const std::string& key = job.arguments.front();
  const WriteOptions options{.durability = job.command.put.durability};
  return report_write(job.command.if_version
                          ? client.remove_if_version(key, *job.command.if_version, options)
                          : client.remove(key, options),
                      client, job, interactive);
}

// `one_sided`: true if the change went by an atomic; empty: not requested.
struct Counted {
  std::int64_t number = 0;
  std::uint64_t version = 0;
  std::optional<bool> one_sided;
};

void report_counter(const Counted& counted, const Job& job) {
  if (!job.command.globals.json) return print_raw(fmt::format("{}\n", counted.number));
  Json object;
  set_bytes(object, "key", job.arguments.front(), job.command.globals.hex);
  object["counter"] = counted.number;
  object["version"] = counted.version;
  if (counted.one_sided) object["one_sided"] = *counted.one_sided;
  print_json(object);
}

// Calls `change` with the key, or with the counter opened for one-sided changes.
template <class Change>
auto change_counter(Cluster& client, const Job& job, std::optional<bool>& one_sided, Change change)
    -> decltype(change(std::string_view())) {
  const std::string& key = job.arguments.front();
  if (!job.command.one_sided) return change(std::string_view(key));
  auto counter = client.open_counter(key);
  if (!counter) return std::unexpected(counter.error());
  auto changed = change(*counter);
  one_sided = counter->is_one_sided();
  return changed;
}

ExitCode run_count(Cluster& client, const Job& job) {
  const std::int64_t by = job.numbers.empty() ? 1 : job.numbers.front();
  const WriteOptions options{.durability = job.command.put.durability};
  std::optional<bool> one_sided;
  const auto counter = change_counter(client, job, one_sided, [&](auto&& target) {
    const bool adds = job.command.verb == Verb::kIncr;
    Result<Counter> last = fail(Code::kInternal, nullptr);
    for (std::uint64_t i = 0; i < job.command.count; ++i) {
      last = adds ? client.incr(target, by, options) : client.decr(target, by, options);
      if (!last) break;
    }
    return last;
  });
  if (!counter) return fail_with(counter.error(), client);
  report_counter({counter->number, counter->version, one_sided}, job);
  return kDone;
}

// Prints the counter's number in both cases, swapped or not.
ExitCode run_cas(Cluster& client, const Job& job) {
  const WriteOptions options{.durability = job.command.put.durability};
  std::optional<bool> one_sided;
  const auto swap = change_counter(client, job, one_sided, [&](auto&& target) {
    return client.counter_cas(target, job.numbers[0], job.numbers[1], options);
  });
  if (!swap) return fail_with(swap.error(), client);
  report_counter({swap->number, swap->version, one_sided}, job);
  return swap->done ? kDone : kConditionExit;
}

}  // namespace

OrFailure<Job> prepare(Command command) {
  Job job;
  job.command = std::move(command);
  OrFailure<void> ready;
  switch (job.command.verb) {
    case Verb::kLoad:
    case Verb::kVerify:
      ready = prepare_records(job);
      break;
    case Verb::kDump:
      ready = prepare_keys(job);
      break;
    case Verb::kScan:
      ready = prepare_range(job);
      break;
    case Verb::kIncr:
    case Verb::kDecr:
    case Verb::kCas:
      ready = prepare_counter(job);
      break;
    case Verb::kTouch:
      ready = prepare_touch(job);
      break;
    case Verb::kBackup:
      break;  // the name is taken as typed
    case Verb::kAdmin:
      ready = check_admin(job.command.arguments);
      break;
    default:
      ready = prepare_arguments(job);
      break;
  }
  if (!ready) return std::unexpected(ready.error());
  return job;
}

ExitCode run(Cluster& client, Job& job, bool interactive) {
  switch (job.command.verb) {
    case Verb::kGet:
      return run_get(client, job);
    case Verb::kPut:
      return run_put(client, job, interactive);
    case Verb::kDel:
      return run_del(client, job, interactive);
    case Verb::kTouch:
      return run_touch(client, job, interactive);
    case Verb::kIncr:
    case Verb::kDecr:
      return run_count(client, job);
    case Verb::kCas:
      return run_cas(client, job);
    case Verb::kMget:
      return run_mget(client, job);
    case Verb::kExists:
      return run_exists(client, job);
    case Verb::kTtl:
      return run_ttl(client, job);
    case Verb::kLoad:
      return run_load(client, job);
    case Verb::kVerify:
      return run_verify(client, job);
    case Verb::kDump:
      return run_dump(client, job);
    case Verb::kScan:
      return run_scan(client, job);
    case Verb::kFlush:
      return run_flush(client, job, interactive);
    case Verb::kBackup:
      return run_backup(client, job);
    case Verb::kAdmin:
      return run_admin(client, job);
    case Verb::kStats:
      return job.command.watch ? run_watch(client, job, interactive) : run_stats(client, job);
    case Verb::kPing:
      return run_ping(client, job);
    case Verb::kBench:
      return run_bench(client, job);
    case Verb::kDoctor:  // in the shell too it opens its own clients
      return run_doctor(job.command);
    case Verb::kShell:
      break;
  }
  return kUsage;
}

ExitCode fail_with(const Error& error, const Cluster& client) {
  complain(describe(error, client));
  return exit_code_of(error);
}

ExitCode exit_code_of(const Error& error) {
  switch (error.code) {
    case Code::kNotFound:
      return kNotFoundExit;
    case Code::kConflict:
      return kConditionExit;
    case Code::kInvalidArgument:
    case Code::kTooLarge:
      return kUsage;
    case Code::kDisconnected:
    case Code::kUnreachable:
    case Code::kRejected:
    case Code::kNotPrimary:
    case Code::kUnauthenticated:
    case Code::kVersionMismatch:
    case Code::kNoDevice:
      return kNoServer;
    default:
      return kFailed;
  }
}

std::string describe(const Error& error, const Cluster& client, std::string_view key) {
  std::string sentence = to_string(error);
  if (error.code == Code::kNotFound) return sentence;
  const std::string& said = key.empty() ? client.last_refusal() : client.last_refusal(key);
  if (!said.empty()) sentence += fmt::format(" (the server says: {})", said);
  return server_prefix(client, key) + sentence;
}

std::string server_prefix(const Cluster& client, std::string_view key) {
  if (client.map().servers().size() == 1) return {};
  const ShardServer& server = key.empty() ? client.last_server() : client.server_of(key);
  return server.address + ": ";
}

std::string shown_value(const Value& value) {
  if (!value.is_counter) return value.value;
  return std::to_string(load_le<std::int64_t>(as_bytes(value.value).data()));
}

void complain(std::string_view sentence) {
  std::fflush(stdout);
  const std::string line = fmt::format("kvclient: {}\n", sentence);
  write_to_stderr(::isatty(STDERR_FILENO) == 1 ? for_terminal(line) : line, kReaderWaitMs);
}

}  // namespace rkv::cli
