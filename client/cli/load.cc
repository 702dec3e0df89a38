// Stores the records of a file: the verb load.
#include <fmt/format.h>

#include <optional>

#include "client/cli/commands.h"
#include "client/cli/interrupt.h"
#include "client/cli/many.h"
#include "client/cli/output.h"
#include "client/cli/progress.h"
#include "client/cli/text.h"
#include "common/clock.h"

namespace rkv::cli {

namespace {

// The records of a file that have been stored so far.
struct Loaded {
  std::uint64_t stored = 0;
  std::uint64_t bytes = 0;
  std::uint64_t replaced = 0;
  std::uint64_t bad = 0;
  double seconds = 0;
};

// The error that ended the load, and the key if it concerns a single key.
struct Refusal {
  Error error;
  std::string key;
};

// Sets the counter to `record.number`, whatever its number is. Changes by other clients in between
// are overwritten, as by a put. A time to live that the counter has stays, unless the record has
// one.
Status set_counter(Cluster& client, const Record& record, const WriteOptions& options) {
  auto now = client.incr(record.key, 0, options);  // creates an absent counter
  if (!now) return std::unexpected(now.error());
  std::int64_t number = now->number;
  while (number != *record.number) {
    const auto swap = client.counter_cas(record.key, number, *record.number, options);
    if (!swap) return std::unexpected(swap.error());
    number = swap->number;
  }
  if (record.expires_at_ms == 0) return {};
  const auto touched = client.put_with(record.key, {},
                                       {.expires_at_ms = record.expires_at_ms,
                                        .timeout = options.timeout,
                                        .durability = options.durability,
                                        .keep_value = true});
  return touched ? Status{} : std::unexpected(touched.error());
}

class Loader {
 public:
  Loader(Cluster& client, const Command& command, const RecordReader* reader, std::size_t records)
      : client_(client),
        options_{.durability = command.put.durability},
        reader_(reader),
        progress_("loading", reader == nullptr ? records : 0, command.progress) {}

  // Stores the records. Returns false at the first record that is refused, or after Ctrl-C.
  bool store(const RecordSet& set) {
    const Interrupt interrupt;
    for (std::size_t first = 0; first < set.records.size() && !refusal_ && !is_interrupted_;) {
      const std::size_t end = batch_end(set.records, first);
      store_batch(std::span(set.records).subspan(first, end - first));
      first = end;
      progress_.update(loaded_.stored, part_read());
      is_interrupted_ = interrupt.wait_until({});
    }
    loaded_.bytes += set.bytes;
    loaded_.replaced += set.replaced;
    loaded_.bad += set.bad;
    loaded_.seconds = seconds_between(started_, clock_.now());
    return !refusal_ && !is_interrupted_;
  }
  bool is_interrupted() const { return is_interrupted_; }
  const Loaded& loaded() const { return loaded_; }
  const std::optional<Refusal>& refusal() const { return refusal_; }
  void clear_progress() { progress_.clear(); }

 private:
  double part_read() const {
    if (reader_ == nullptr || reader_->bytes_total() == 0) return -1;
    return static_cast<double>(reader_->bytes_read()) / static_cast<double>(reader_->bytes_total());
  }
  void refuse(const Error& error, std::string_view key) {
    if (!refusal_) refusal_ = {.error = error, .key = std::string(key)};
  }
  void store_batch(std::span<const Record> records) {
    items_.clear();
    for (const Record& record : records) {
      if (record.number) continue;
      items_.push_back(
          {.key = record.key, .value = record.value, .expires_at_ms = record.expires_at_ms});
    }
    const auto versions = client_.multi_put(items_, options_);
    for (std::size_t i = 0; i < versions.size(); ++i) {
      if (versions[i]) {
        ++loaded_.stored;
      } else {
        refuse(versions[i].error(), items_[i].key);
      }
    }
    for (const Record& record : records) {
      if (!record.number || refusal_) continue;
      if (const Status set = set_counter(client_, record, options_); !set) {
        refuse(set.error(), record.key);
      } else {
        ++loaded_.stored;
      }
    }
  }

  Cluster& client_;
  const WriteOptions options_;
  const RecordReader* const reader_;  // nullptr: all records are known
  const SteadyClock clock_;
  const Nanos started_ = clock_.now();
  Progress progress_;
  Loaded loaded_;
  std::optional<Refusal> refusal_;
  bool is_interrupted_ = false;
  std::vector<KeyValue> items_;
};

void print_loaded(const Loaded& loaded) {
  std::string line = fmt::format("stored {} records, {} bytes, in {:.2f} s", loaded.stored,
                                 loaded.bytes, loaded.seconds);
  if (loaded.seconds > 0) {
    line += fmt::format(" ({:.0f} records/s)", static_cast<double>(loaded.stored) / loaded.seconds);
  }
  if (loaded.replaced != 0) {
    line += fmt::format("; {} replaced by a later record of the same key", loaded.replaced);
  }
  if (loaded.bad != 0) line += fmt::format("; {} bad records skipped", loaded.bad);
  print_raw(line + "\n");
}

Json to_json(const Loaded& loaded) {
  return {{"records", loaded.stored},
          {"bytes", loaded.bytes},
          {"seconds", loaded.seconds},
          {"replaced", loaded.replaced},
          {"bad", loaded.bad}};
}

std::string stopped(const Loaded& loaded, const std::string& why) {
  return fmt::format("stopped after {} records were stored: {}", loaded.stored, why);
}

}  // namespace

ExitCode run_load(Cluster& client, Job& job) {
  const Command& command = job.command;
  Loader loader(client, command, job.reader ? &*job.reader : nullptr, job.records.records.size());
  bool going = loader.store(job.records);
  while (going && job.reader) {
    auto part = job.reader->next();
    if (!part) {
      loader.clear_progress();
      complain(stopped(loader.loaded(), part.error().sentence));
      return part.error().exit_code;
    }
    if (part->records.empty() && part->bad == 0) break;
    going = loader.store(*part);
  }
  loader.clear_progress();
  if (const auto& refusal = loader.refusal()) {
    complain(stopped(loader.loaded(), fmt::format("key {}: {}", escape_tsv(refusal->key),
                                                  describe(refusal->error, client, refusal->key))));
    // The file is well-formed: an error of the server is not a mistake of usage.
    return exit_code_of(refusal->error) == kNoServer ? kNoServer : kFailed;
  }
  if (loader.is_interrupted()) {
    complain(stopped(loader.loaded(), "interrupted"));
    return kFailed;
  }
  const bool json = command.globals.json;
  Json result = to_json(loader.loaded());
  if (!json) print_loaded(loader.loaded());
  ExitCode exit_code = kDone;
  if (command.verify) {
    const Verification verification = read_back(client, job.records, false, command.progress);
    result["verify"] = verification.facts;
    if (!json) print_facts(verification.facts);
    exit_code = verification.exit_code;
  }
  if (json) print_json(result);
  return exit_code;
}

}  // namespace rkv::cli
