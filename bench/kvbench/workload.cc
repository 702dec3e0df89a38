#include "bench/kvbench/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "bench/kvbench/record.h"
#include "rkv/limits.h"

namespace rkv::kvbench {

namespace {

constexpr std::uint64_t kMostRecords = std::uint64_t{1} << 48;
constexpr std::uint64_t kMostFields = 16384;
constexpr std::uint64_t kMostScan = 1'000'000;

// Reads properties one by one and keeps the first error.
class Read {
 public:
  explicit Read(const Properties& properties) : properties_(properties) {}

  std::uint64_t number(const char* name, std::uint64_t fallback, std::uint64_t least,
                       std::uint64_t most) {
    return take(properties_.number(name, fallback, least, most));
  }
  double real(const char* name, double fallback, double least, double most) {
    return take(properties_.real(name, fallback, least, most));
  }
  bool boolean(const char* name, bool fallback) {
    return take(properties_.boolean(name, fallback));
  }
  std::string text(const char* name, std::string_view fallback) {
    return properties_.text(name, fallback);
  }
  bool has(const char* name) const { return properties_.has(name); }
  void wrong(const char* name, const std::string& sentence) {
    if (problem_.empty()) problem_ = properties_.place(name) + sentence;
  }
  // Reports a missing required property. An unknown property may be the missing one, mistyped.
  void missing(const std::string& sentence) {
    if (!problem_.empty()) return;
    problem_ = sentence;
    for (const auto& [name, property] : properties_.all()) {
      if (is_known_property(name)) continue;
      problem_ += fmt::format(" ({}: unknown property '{}')", property.place, name);
      return;
    }
  }
  const std::string& problem() const { return problem_; }

 private:
  template <class T>
  T take(OrSentence<T> value) {
    if (value) return *value;
    if (problem_.empty()) problem_ = value.error();
    return T{};
  }

  const Properties& properties_;
  std::string problem_;
};

void read_name(Read& read) {
  const std::string name = read.text("workload", "");
  if (name.empty()) {
    return read.missing(
        "the property workload is missing: give a file, such as -P workloads/workloada");
  }
  if (name != "site.ycsb.workloads.CoreWorkload" &&
      name != "com.yahoo.ycsb.workloads.CoreWorkload") {
    read.wrong(
        "workload",
        fmt::format("unknown workload '{}'; site.ycsb.workloads.CoreWorkload is supported", name));
  }
}

void read_counts(Read& read, Phase phase, WorkloadSettings& settings) {
  if (!read.has("recordcount")) {
    return read.missing("the property recordcount is missing: give the number of records");
  }
  settings.record_count = read.number("recordcount", 0, 0, kMostRecords);
  if (settings.record_count == 0) {
    return read.wrong("recordcount", "recordcount is 0: give the number of records");
  }
  settings.insert_start = read.number("insertstart", 0, 0, kMostRecords);
  if (settings.insert_start >= settings.record_count) {
    return read.wrong("insertstart", "insertstart must be below recordcount");
  }
  const std::uint64_t rest = settings.record_count - settings.insert_start;
  settings.insert_count = read.number("insertcount", rest, 1, kMostRecords);
  if (settings.insert_count > rest) {
    return read.wrong("insertcount",
                      "insertstart and insertcount together must not exceed recordcount");
  }
  // As YCSB: without an insertcount, recordcount records from insertstart on.
  settings.load_count = read.has("insertcount") ? settings.insert_count : settings.record_count;
  settings.operation_count = read.number("operationcount", 0, 0, kMostRecords);
  settings.max_seconds = read.number("maxexecutiontime", 0, 0, 1U << 30);
  if (phase == Phase::kLoad || settings.operation_count != 0 || settings.max_seconds != 0) return;
  constexpr const char* kSay =
      "give the number of operations, or a time limit in seconds by maxexecutiontime";
  if (read.has("operationcount")) {
    return read.wrong("operationcount", fmt::format("operationcount is 0: {}", kSay));
  }
  read.missing(fmt::format("the property operationcount is missing: {}", kSay));
}

// constant, uniform or zipfian: lengths from `least` to `most`.
std::optional<LengthGenerator> simple_lengths(const std::string& distribution, std::uint64_t least,
                                              std::uint64_t most) {
  if (distribution == "uniform") return Uniform(least, most);
  if (distribution == "zipfian") return Zipfian(least, most);
  return std::nullopt;
}

void read_fields(Read& read, WorkloadSettings& settings) {
  settings.field_count = read.number("fieldcount", 10, 1, kMostFields);
  settings.field_name_prefix = read.text("fieldnameprefix", "field");
  const std::uint64_t most = read.number("fieldlength", 100, 0, kMaxValueBytes);
  const std::uint64_t least = read.number("minfieldlength", 1, 0, kMaxValueBytes);
  const std::string distribution = read.text("fieldlengthdistribution", "constant");
  settings.most_field_bytes = most;
  if (!read.problem().empty()) return;
  if (distribution != "constant" && distribution != "histogram" && least > most) {
    return read.wrong("minfieldlength", "minfieldlength must not exceed fieldlength");
  }
  if (distribution == "constant") {
    settings.field_length = Constant{most};
  } else if (const auto simple = simple_lengths(distribution, least, most)) {
    settings.field_length = *simple;
  } else if (distribution == "histogram") {
    auto histogram = LengthHistogram::read_file(read.text("fieldlengthhistogram", "hist.txt"));
    if (!histogram) {
      return read.wrong("fieldlengthhistogram", "fieldlengthhistogram: " + histogram.error());
    }
    settings.most_field_bytes = histogram->most();
    settings.field_length = std::move(*histogram);
  } else {
    return read.wrong("fieldlengthdistribution",
                      fmt::format("unknown fieldlengthdistribution '{}': constant, uniform, "
                                  "zipfian and histogram are supported",
                                  distribution));
  }
  if (settings.most_field_bytes > kMaxValueBytes ||
      most_record_bytes(settings.field_count, settings.most_field_bytes) > kMaxValueBytes) {
    read.wrong("fieldlength",
               fmt::format("{} fields of up to {} bytes exceed the longest value, 16 MiB",
                           settings.field_count, settings.most_field_bytes));
  }
}

void read_rules(Read& read, WorkloadSettings& settings) {
  settings.read_all_fields = read.boolean("readallfields", true);
  read.boolean("readallfieldsbyname", false);  // no effect: a record is one value
  settings.write_all_fields = read.boolean("writeallfields", false);
  settings.data_integrity = read.boolean("dataintegrity", false);
  if (settings.data_integrity && read.text("fieldlengthdistribution", "constant") != "constant") {
    read.wrong("dataintegrity", "dataintegrity=true needs fieldlengthdistribution=constant");
  }
  // As YCSB: every value but "hashed" means ordered; an unknown word is reported.
  const std::string order = read.text("insertorder", "hashed");
  if (order != "hashed" && order != "ordered") {
    read.wrong("insertorder", fmt::format("insertorder needs hashed or ordered, not '{}'", order));
  }
  settings.keys.ordered = order == "ordered";
  settings.keys.zero_padding = read.number("zeropadding", 1, 0, kMaxKeyBytes - 4);
  settings.insertion_retries =
      read.number("core_workload_insertion_retry_limit", 0, 0, 1'000'000'000);
  settings.insertion_retry_s = read.real("core_workload_insertion_retry_interval", 3, 0, 86400);
  settings.insertion_keep_going =
      read.boolean("core_workload_insertion_keep_going_on_error", false);
}

void read_proportions(Read& read, WorkloadSettings& settings) {
  constexpr double kRounding = 1e-6;  // for thirds and similar fractions written with few digits
  constexpr std::pair<const char*, double> kNames[kOperations] = {{"readproportion", 0.95},
                                                                  {"updateproportion", 0.05},
                                                                  {"insertproportion", 0},
                                                                  {"scanproportion", 0},
                                                                  {"readmodifywriteproportion", 0}};
  double sum = 0;
  std::string terms;
  for (std::size_t i = 0; i < kOperations; ++i) {
    const auto& [name, fallback] = kNames[i];
    settings.proportions[i] = read.real(name, fallback, 0, 1);
    sum += settings.proportions[i];
    terms += fmt::format("{}{} {}{}", i == 0 ? "" : ", ", name, settings.proportions[i],
                         read.has(name) || fallback == 0 ? "" : " (the default)");
  }
  if (read.problem().empty() && std::abs(sum - 1) > kRounding) {
    const char* first = read.has("readproportion") ? "readproportion" : "updateproportion";
    read.wrong(first, fmt::format("the proportions add up to {:.6g}, not to 1: {}", sum, terms));
  }
}

void read_distributions(Read& read, WorkloadSettings& settings) {
  using enum RequestDistribution;
  constexpr std::pair<const char*, RequestDistribution> kKnown[] = {
      {"uniform", kUniform}, {"zipfian", kZipfian},       {"latest", kLatest},
      {"hotspot", kHotspot}, {"sequential", kSequential}, {"exponential", kExponential}};
  const std::string name = read.text("requestdistribution", "uniform");
  const auto* known =
      std::ranges::find_if(kKnown, [&](const auto& one) { return name == one.first; });
  if (known == std::end(kKnown)) {
    return read.wrong("requestdistribution",
                      fmt::format("unknown requestdistribution '{}': uniform, zipfian, latest, "
                                  "hotspot, sequential and exponential are supported",
                                  name));
  }
  settings.distribution = known->second;
  settings.hotspot_data = read.real("hotspotdatafraction", 0.2, 0, 1);
  settings.hotspot_operations = read.real("hotspotopnfraction", 0.8, 0, 1);
  // With 0 percent YCSB requests records that do not exist.
  settings.exponential_percentile = read.real("exponential.percentile", 95, 1e-6, 100);
  settings.exponential_part = read.real("exponential.frac", 0.8571428571, 0, 1e9);

  const std::uint64_t least = read.number("minscanlength", 1, 1, kMostScan);
  const std::uint64_t most = read.number("maxscanlength", 1000, 1, kMostScan);
  const std::string lengths = read.text("scanlengthdistribution", "uniform");
  if (!read.problem().empty()) return;
  if (least > most) return read.wrong("minscanlength", "minscanlength is above maxscanlength");
  const auto simple = simple_lengths(lengths, least, most);
  if (!simple) {
    return read.wrong(
        "scanlengthdistribution",
        fmt::format("unknown scanlengthdistribution '{}': uniform and zipfian are supported",
                    lengths));
  }
  settings.scan_length = *simple;
}

}  // namespace

OrSentence<WorkloadSettings> read_workload(const Properties& properties, Phase phase) {
  Read read(properties);
  WorkloadSettings settings;
  read_name(read);
  read_counts(read, phase, settings);
  read_fields(read, settings);
  read_rules(read, settings);
  read_proportions(read, settings);
  read_distributions(read, settings);
  if (!read.problem().empty()) return std::unexpected(read.problem());
  return settings;
}

// ------------------------------------------------------------------------------------ choices

Workload::Workload(WorkloadSettings settings)
    : settings_(std::move(settings)),
      loaded_(settings_.insert_start),
      inserted_(settings_.record_count),
      sequential_(std::make_unique<Sequential>(
          settings_.insert_start, settings_.insert_start + settings_.insert_count - 1)) {}

// Twice the expected insertions are among the numbers from the beginning, so that popular numbers
// do not change; a number not yet inserted is drawn again. YCSB 0.10 and later use one number more,
// by an inclusive bound, which moves the popular numbers; we do not.
std::uint64_t zipfian_numbers(const WorkloadSettings& settings) {
  const double expected = static_cast<double>(settings.operation_count) *
                          settings.proportions[static_cast<std::size_t>(Operation::kInsert)] * 2.0;
  return settings.insert_count + static_cast<std::uint64_t>(expected);
}

Chooser::Chooser(Workload& workload, std::uint64_t seed)
    : workload_(&workload),
      random_(seed),
      fields_(0, workload.settings_.field_count - 1),
      keys_(make_keys(workload)) {}

Chooser::Keys Chooser::make_keys(Workload& workload) {
  const WorkloadSettings& settings = workload.settings_;
  const std::uint64_t least = settings.insert_start;
  const std::uint64_t most = least + settings.insert_count - 1;
  switch (settings.distribution) {
    case RequestDistribution::kUniform:
      return Uniform(least, most);
    case RequestDistribution::kZipfian:
      return ScrambledZipfian(least, least + zipfian_numbers(settings) - 1);
    case RequestDistribution::kLatest:
      return Latest(settings.record_count);
    case RequestDistribution::kHotspot:
      return Hotspot(least, most, settings.hotspot_data, settings.hotspot_operations);
    case RequestDistribution::kSequential:
      return workload.sequential_.get();
    case RequestDistribution::kExponential:
      break;
  }
  return Exponential(settings.exponential_percentile,
                     static_cast<double>(settings.record_count) * settings.exponential_part);
}

Operation Chooser::operation() {
  const auto& proportions = workload_->settings_.proportions;
  double left = next_double(random_);
  std::size_t last = 0;
  for (std::size_t i = 0; i < kOperations; ++i) {
    if (proportions[i] == 0) continue;
    last = i;
    if (left < proportions[i]) break;
    left -= proportions[i];
  }
  return static_cast<Operation>(last);
}

std::optional<std::uint64_t> Chooser::record() {
  const std::uint64_t end = workload_->inserted_.end();
  std::uint64_t record = 0;
  if (const auto* exponential = std::get_if<Exponential>(&keys_)) {
    record = exponential->next(random_, end);
  } else if (auto* latest = std::get_if<Latest>(&keys_)) {
    record = latest->next(random_, end);
  } else if (auto* const* sequential = std::get_if<Sequential*>(&keys_)) {
    record = (*sequential)->next();
  } else if (const auto* zipfian = std::get_if<ScrambledZipfian>(&keys_)) {
    record = zipfian->next(random_);
  } else if (const auto* hotspot = std::get_if<Hotspot>(&keys_)) {
    record = hotspot->next(random_);
  } else {
    record = std::get<Uniform>(keys_).next(random_);
  }
  if (record >= end) return std::nullopt;
  return record;
}

bool is_known_property(const std::string& name) {
  static const auto* const known = new std::vector<std::string>{
      "workload", "recordcount", "operationcount", "insertstart", "insertcount", "maxexecutiontime",
      "fieldcount", "fieldlength", "minfieldlength", "fieldlengthdistribution",
      "fieldlengthhistogram", "fieldnameprefix", "readallfields", "readallfieldsbyname",
      "writeallfields", "dataintegrity", "readproportion", "updateproportion", "insertproportion",
      "scanproportion", "readmodifywriteproportion", "requestdistribution", "hotspotdatafraction",
      "hotspotopnfraction", "exponential.percentile", "exponential.frac", "minscanlength",
      "maxscanlength", "scanlengthdistribution", "insertorder", "zeropadding",
      "core_workload_insertion_retry_limit", "core_workload_insertion_retry_interval",
      "core_workload_insertion_keep_going_on_error",
      // Properties of the program.
      "threadcount", "target", "dotransactions", "status", "status.interval", "label", "spin.sleep",
      "measurementtype", "measurement.interval", "hdrhistogram.percentiles",
      "hdrhistogram.fileoutput", "hdrhistogram.output.path", "measurement.histogram.verbose",
      "exporter", "exportfile", "reportlatencyforeacherror", "latencytrackederrors",
      // Properties without effect here that occur in existing files.
      "table", "columnfamily", "db", "histogram.buckets", "timeseries.granularity", "maxscanrate",
      "scanoptimelimit", "discardscannedrecord", "measurement.trackjvm"};
  return std::ranges::find(*known, name) != known->end();
}

}  // namespace rkv::kvbench
