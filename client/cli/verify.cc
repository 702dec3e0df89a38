// Reads records back and compares them: the verb verify, and load --verify.
#include <fmt/format.h>

#include "client/cli/commands.h"
#include "client/cli/many.h"
#include "client/cli/output.h"
#include "client/cli/progress.h"
#include "common/bytes.h"
#include "common/clock.h"
#include "common/histogram.h"

namespace rkv::cli {

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

namespace {

struct Comparison {
  std::uint64_t missing = 0;
  std::uint64_t mismatches = 0;
  ClientStats before;
  ClientStats after;
  double seconds = 0;
  Histogram nanos;  // of blocking GETs
  bool sequential = false;
  std::optional<Error> error;
  std::string error_key;

  void judge(const Record& record, std::string_view value, std::optional<bool> is_counter) {
    const bool counter_expected = record.number.has_value();
    const bool same = counter_expected
                          ? value.size() == sizeof(std::int64_t) &&
                                load_le<std::int64_t>(as_bytes(value).data()) == *record.number
                          : value == record.value;
    if (!same || is_counter.value_or(counter_expected) != counter_expected) ++mismatches;
  }
  bool equal() const { return missing == 0 && mismatches == 0 && !error; }
};

// Counts kNotFound as missing; any other error ends the comparison.
void note(Comparison& comparison, const Error& error, std::string_view key) {
  if (error.code == Code::kNotFound) {
    ++comparison.missing;
  } else if (!comparison.error) {
    comparison.error = error;
    comparison.error_key = key;
  }
}

void compare_sequentially(Cluster& client, const RecordSet& set, Comparison& comparison,
                          Progress& progress) {
  const SteadyClock clock;
  std::vector<std::byte> buffer(kMaxValueBytes);
  for (std::size_t i = 0; i < set.records.size() && !comparison.error; ++i) {
    const Record& record = set.records[i];
    const Nanos before = clock.now();
    const auto got = client.get_into(record.key, buffer);
    comparison.nanos.record(static_cast<std::uint64_t>(clock.now() - before));
    if (got) {
      comparison.judge(record, as_text(Bytes(buffer).first(got->bytes)), std::nullopt);
    } else {
      note(comparison, got.error(), record.key);
    }
    progress.update(i + 1);
  }
}

void compare_pipelined(Cluster& client, const RecordSet& set, Comparison& comparison,
                       Progress& progress) {
  std::vector<std::string_view> keys;
  for (std::size_t first = 0; first < set.records.size() && !comparison.error;) {
    const std::size_t end = batch_end(set.records, first);
    keys.clear();
    for (std::size_t i = first; i < end; ++i)
      keys.push_back(set.records[i].key);
    client.multi_get_into(keys, [&](std::size_t i, const Result<ValueView>& result) {
      if (result) {
        comparison.judge(set.records[first + i], result->value, result->is_counter);
      } else {
        note(comparison, result.error(), keys[i]);
      }
    });
    first = end;
    progress.update(first);
  }
}

Comparison compare(Cluster& client, const RecordSet& set, bool sequential, bool show_progress) {
  const SteadyClock clock;
  Progress progress("reading back", set.records.size(), show_progress);
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

ExitCode verdict(const Comparison& comparison, const Cluster& client) {
  if (comparison.error) {
    complain(describe(*comparison.error, client, comparison.error_key));
    return exit_code_of(*comparison.error) == kNoServer ? kNoServer : kFailed;
  }
  if (comparison.equal()) return kDone;
  complain(fmt::format("{} records are missing and {} differ", comparison.missing,
                       comparison.mismatches));
  return kFailed;
}

}  // namespace

Verification read_back(Cluster& client, const RecordSet& set, bool sequential, bool progress) {
  const Comparison comparison = compare(client, set, sequential, progress);
  return {.facts = to_json(comparison, set), .exit_code = verdict(comparison, client)};
}

void print_facts(const Json& result) {
  for (const auto& [name, value] : result.items()) {
    if (value.is_null()) continue;
    print_raw(value.is_number_float() ? fmt::format("{:20} {:.3f}\n", name, value.get<double>())
                                      : fmt::format("{:20} {}\n", name, value.dump()));
  }
}

ExitCode run_verify(Cluster& client, Job& job) {
  const Command& command = job.command;
  const Verification verification =
      read_back(client, job.records, command.sequential, command.progress);
  if (command.globals.json) {
    print_json(verification.facts);
  } else {
    print_facts(verification.facts);
  }
  return verification.exit_code;
}

}  // namespace rkv::cli
