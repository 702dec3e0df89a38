// The verbs that move many records: load, verify, dump.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "client/cli/commands.h"
#include "client/cli/output.h"
#include "client/cli/progress.h"
#include "client/cli/text.h"
#include "common/clock.h"
#include "common/histogram.h"

namespace rkv::cli {

namespace {

// One call of the client moves this much at most, so that its deadline is that of an amount of
// work and not of a whole file.
constexpr std::size_t kBatchRecords = 256;
constexpr std::size_t kBatchBytes = std::size_t{1} << 20;

// The end of the batch that starts at `first`.
std::size_t batch_end(const std::vector<Record>& records, std::size_t first) {
  std::size_t bytes = 0;
  std::size_t end = first;
  while (end < records.size() && end - first < kBatchRecords &&
         (end == first || bytes < kBatchBytes)) {
    bytes += records[end].key.size() + records[end].value.size();
    ++end;
  }
  return end;
}

double seconds_between(Nanos from, Nanos to) {
  return static_cast<double>(to - from) / 1e9;
}

// ---------------------------------------------------------------------------------- verifying

struct Comparison {
  std::uint64_t missing = 0;
  std::uint64_t mismatches = 0;
  ClientStats before;
  ClientStats after;
  double seconds = 0;
  Histogram nanos;  // of blocking GETs
  bool sequential = false;
  std::optional<Error> error;

  void judge(const Record& record, bool found, std::string_view value) {
    if (!found) {
      ++missing;
    } else if (value != record.value) {
      ++mismatches;
    }
  }
  bool equal() const { return missing == 0 && mismatches == 0 && !error; }
};

// Not found counts; any other error ends the comparison.
void note(Comparison& comparison, const Error& error) {
  if (error.code == Code::kNotFound) {
    ++comparison.missing;
  } else if (!comparison.error) {
    comparison.error = error;
  }
}

void compare_sequentially(Client& client, const RecordSet& set, Comparison& comparison,
                          Progress& progress) {
  const SteadyClock clock;
  std::vector<std::byte> buffer(kMaxValueBytes);
  for (std::size_t i = 0; i < set.records.size() && !comparison.error; ++i) {
    const Record& record = set.records[i];
    const Nanos before = clock.now();
    const auto got = client.get_into(record.key, buffer);
    comparison.nanos.record(static_cast<std::uint64_t>(clock.now() - before));
    if (got) {
      comparison.judge(record, true, {reinterpret_cast<const char*>(buffer.data()), got->bytes});
    } else {
      note(comparison, got.error());
    }
    progress.update(i + 1);
  }
}

void compare_pipelined(Client& client, const RecordSet& set, Comparison& comparison,
                       Progress& progress) {
  std::vector<std::string_view> keys;
  for (std::size_t first = 0; first < set.records.size() && !comparison.error;) {
    const std::size_t end = batch_end(set.records, first);
    keys.clear();
    for (std::size_t i = first; i < end; ++i)
      keys.push_back(set.records[i].key);
    client.multi_get_into(keys, [&](std::size_t i, const Result<ValueView>& result) {
      if (result) {
        comparison.judge(set.records[first + i], true, result->value);
      } else {
        note(comparison, result.error());
      }
    });
    first = end;
    progress.update(first);
  }
}

Comparison compare(Client& client, const RecordSet& set, bool sequential) {
  const SteadyClock clock;
  Progress progress("reading back", set.records.size());
  Comparison comparison;
  comparison.sequential = sequential;
  comparison.before = client.stats();
  const Nanos started = clock.now();
  if (sequential) {
    compare_sequentially(client, set, comparison, progress);
  } else {
    compare_pipelined(client, set, comparison, progress);
  }
  comparison.seconds = seconds_between(started, clock.now());
  comparison.after = client.stats();
  return comparison;
}

Json to_json(const Comparison& comparison, const RecordSet& set) {
  const auto risen = [&](std::uint64_t ClientStats::* counter) {
    return comparison.after.*counter - comparison.before.*counter;
  };
  const std::uint64_t gets = risen(&ClientStats::gets);
  const std::uint64_t reads = risen(&ClientStats::rdma_reads);
  const auto us = [&](double percent) {
    return comparison.sequential
               ? Json(static_cast<double>(comparison.nanos.percentile(percent)) / 1000)
               : Json(nullptr);
  };
  return Json{{"records", set.records.size()},
              {"bytes", set.bytes},
              {"gets", gets},
              {"one_sided_gets", risen(&ClientStats::one_sided_gets)},
              {"two_sided_gets", risen(&ClientStats::two_sided_gets)},
              {"rdma_reads", reads},
              {"rdma_reads_per_get",
               gets == 0 ? 0.0 : static_cast<double>(reads) / static_cast<double>(gets)},
              {"retries", risen(&ClientStats::retries)},
              {"tears_detected", risen(&ClientStats::tears_detected)},
              {"missing", comparison.missing},
              {"mismatches", comparison.mismatches},
              {"p50_us", us(50)},
              {"p99_us", us(99)},
              {"seconds", comparison.seconds}};
}

void print_comparison(const Json& result) {
  for (const auto& [name, value] : result.items()) {
    if (value.is_null()) continue;
    print_raw(value.is_number_float() ? fmt::format("{:20} {:.3f}\n", name, value.get<double>())
                                      : fmt::format("{:20} {}\n", name, value.dump()));
  }
}

ExitCode verdict(const Comparison& comparison, const Client& client) {
  if (comparison.error) {
    complain(describe(*comparison.error, client));
    return exit_code_of(*comparison.error) == kNoServer ? kNoServer : kFailed;
  }
  if (comparison.equal()) return kDone;
  complain(fmt::format("{} records are missing and {} differ", comparison.missing,
                       comparison.mismatches));
  return kFailed;
}

// ------------------------------------------------------------------------------------ loading

// Stores all records; how many were. Stops at the first that was refused.
std::size_t store(Client& client, const RecordSet& set, const WriteOptions& options,
                  std::optional<Error>& error) {
  Progress progress("loading", set.records.size());
  std::vector<KeyValue> items;
  std::size_t stored = 0;
  for (std::size_t first = 0; first < set.records.size() && !error;) {
    const std::size_t end = batch_end(set.records, first);
    items.clear();
    for (std::size_t i = first; i < end; ++i) {
      items.push_back({.key = set.records[i].key, .value = set.records[i].value});
    }
    for (const auto& version : client.multi_put(items, options)) {
      if (version) {
        ++stored;
      } else if (!error) {
        error = version.error();
      }
    }
    first = end;
    progress.update(first);
  }
  return stored;
}

void print_load(const RecordSet& set, double seconds) {
  std::string line = fmt::format("stored {} records, {} bytes, in {:.2f} s", set.records.size(),
                                 set.bytes, seconds);
  if (seconds > 0) {
    line += fmt::format(" ({:.0f} records/s)", static_cast<double>(set.records.size()) / seconds);
  }
  if (set.replaced != 0) {
    line += fmt::format("; {} came again under the same key, the last won", set.replaced);
  }
  if (set.bad != 0) line += fmt::format("; {} bad ones left out", set.bad);
  print_raw(line + "\n");
}

void print_record(const Job& job, std::string_view key, std::string_view value, bool jsonl) {
  const bool hex = job.command.globals.hex;
  if (jsonl) {
    Json object;
    set_bytes(object, "key", key, hex);
    set_bytes(object, "value", value, hex);
    return print_json(object);
  }
  const auto show = hex ? to_hex : escape_tsv;
  print_raw(fmt::format("{}\t{}\n", show(key), show(value)));
}

}  // namespace

ExitCode run_load(Client& client, Job& job) {
  const SteadyClock clock;
  const RecordSet& set = job.records;
  const bool json = job.command.globals.json;
  const Nanos started = clock.now();
  std::optional<Error> error;
  const std::size_t stored = store(client, set, {.durability = job.command.put.durability}, error);
  const double seconds = seconds_between(started, clock.now());
  if (error) {
    complain(fmt::format("stopped after {} of {} records: {}", stored, set.records.size(),
                         describe(*error, client)));
    // A file is well-formed here: what the server refuses is no mistake of usage.
    return exit_code_of(*error) == kNoServer ? kNoServer : kFailed;
  }
  Json result{{"records", set.records.size()},
              {"bytes", set.bytes},
              {"seconds", seconds},
              {"replaced", set.replaced},
              {"bad", set.bad}};
  if (!json) print_load(set, seconds);
  ExitCode exit_code = kDone;
  if (job.command.verify) {
    const Comparison comparison = compare(client, set, false);
    result["verify"] = to_json(comparison, set);
    if (!json) print_comparison(result["verify"]);
    exit_code = verdict(comparison, client);
  }
  if (json) print_json(result);
  return exit_code;
}

ExitCode run_verify(Client& client, Job& job) {
  const Comparison comparison = compare(client, job.records, job.command.sequential);
  const Json result = to_json(comparison, job.records);
  if (job.command.globals.json) {
    print_json(result);
  } else {
    print_comparison(result);
  }
  return verdict(comparison, client);
}

ExitCode run_dump(Client& client, Job& job) {
  const Globals& globals = job.command.globals;
  const bool jsonl =
      job.command.format == Format::kJsonl || (job.command.format == Format::kAuto && globals.json);
  std::uint64_t missing = 0;
  for (std::size_t first = 0; first < job.arguments.size(); first += kBatchRecords) {
    const std::size_t end = std::min(first + kBatchRecords, job.arguments.size());
    const std::vector<std::string_view> keys(
        job.arguments.begin() + static_cast<std::ptrdiff_t>(first),
        job.arguments.begin() + static_cast<std::ptrdiff_t>(end));
    const auto values = client.multi_get(keys);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (values[i]) {
        print_record(job, keys[i], shown(*values[i]), jsonl);
      } else if (values[i].error().code == Code::kNotFound) {
        ++missing;
      } else {
        complain(describe(values[i].error(), client));
        return exit_code_of(values[i].error());
      }
    }
  }
  if (missing == 0) return kDone;
  complain(fmt::format("{} of {} keys were not found", missing, job.arguments.size()));
  return kNotFoundExit;
}

}  // namespace rkv::cli
