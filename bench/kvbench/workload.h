// YCSB's CoreWorkload: the settings of a run, read from properties, and the choices of record,
// field and length for each operation. Names, defaults and meaning are those of
// site.ycsb.workloads.CoreWorkload.
//
//   auto settings = read_workload(properties, Phase::kTransactions);
//   Workload workload(*settings);
//   Chooser chooser(workload, seed);                  // one per thread
//   switch (chooser.operation()) { case Operation::kRead: key = chooser.record(); ...
//
// Thread safety: a Workload is shared, a Chooser belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bench/kvbench/generators.h"
#include "bench/kvbench/keys.h"
#include "bench/kvbench/properties.h"
#include "bench/kvbench/random_source.h"

namespace rkv::kvbench {

enum class Phase : std::uint8_t { kLoad, kTransactions };
enum class Operation : std::uint8_t { kRead, kUpdate, kInsert, kScan, kReadModifyWrite };
inline constexpr std::size_t kOperations = 5;

enum class RequestDistribution : std::uint8_t {
  kUniform,
  kZipfian,
  kLatest,
  kHotspot,
  kSequential,
  kExponential,
};

// Settings from the properties, checked.
struct WorkloadSettings {
  std::uint64_t record_count = 0;
  std::uint64_t operation_count = 0;  // number of transactions; 0 = until max_seconds
  std::uint64_t insert_start = 0;
  std::uint64_t insert_count = 0;  // number of records that requests choose from
  std::uint64_t load_count = 0;    // number of records that -load inserts
  std::uint64_t max_seconds = 0;   // 0 = no limit

  std::size_t field_count = 10;
  std::string field_name_prefix = "field";
  LengthGenerator field_length = Constant{100};
  std::size_t most_field_bytes = 100;
  bool read_all_fields = true;
  bool write_all_fields = false;
  bool data_integrity = false;
  KeyNames keys;

  std::array<double, kOperations> proportions{};  // by Operation; sum 1
  RequestDistribution distribution = RequestDistribution::kUniform;
  double hotspot_data = 0.2;
  double hotspot_operations = 0.8;
  double exponential_percentile = 95;
  double exponential_part = 0.8571428571;
  LengthGenerator scan_length = Constant{1};

  std::uint64_t insertion_retries = 0;
  double insertion_retry_s = 3;
  bool insertion_keep_going = false;
};

// On an error, returns a sentence that names the property and its position.
OrSentence<WorkloadSettings> read_workload(const Properties& properties, Phase phase);

// How many numbers zipfian requests choose from: existing records and those that may be inserted.
std::uint64_t zipfian_numbers(const WorkloadSettings& settings);

class Workload {
 public:
  explicit Workload(WorkloadSettings settings);
  const WorkloadSettings& settings() const { return settings_; }
  // Number of the next record that -load inserts.
  std::uint64_t next_loaded() { return loaded_.fetch_add(1, std::memory_order_relaxed); }
  // Numbers of the records that transactions insert.
  AcknowledgedCounter& inserted() { return inserted_; }

 private:
  friend class Chooser;
  const WorkloadSettings settings_;
  std::atomic<std::uint64_t> loaded_;
  AcknowledgedCounter inserted_;
  std::unique_ptr<Sequential> sequential_;
};

// The choices of one thread.
class Chooser {
 public:
  Chooser(Workload& workload, std::uint64_t seed);

  Operation operation();
  // Draws a record that exists, unless its insertion failed. nullopt: the number drawn is of a
  // record not yet inserted; draw again. With many more insertions to come than records, zipfian
  // draws may return nullopt for a long time: check for a stop in between.
  std::optional<std::uint64_t> record();
  std::size_t field() { return fields_.next(random_); }
  std::size_t field_bytes() { return next_length(workload_->settings_.field_length, random_); }
  std::uint64_t scan_length() { return next_length(workload_->settings_.scan_length, random_); }
  Random& random() { return random_; }

 private:
  using Keys = std::variant<Uniform, ScrambledZipfian, Latest, Hotspot, Sequential*, Exponential>;
  static Keys make_keys(Workload& workload);

  Workload* workload_;
  Random random_;
  Uniform fields_;
  Keys keys_;
};

// Whether a property is used here, or is used by other programs and may be ignored here. Serves to
// report mistyped names. Names such as "htrace.*" and those of other stores are unknown.
bool is_known_property(const std::string& name);

}  // namespace rkv::kvbench
