#include "bench/kvbench/store.h"

#include <span>
#include <utility>

#include "bench/kvbench/record.h"

namespace rkv::kvbench {

namespace {

Outcome outcome_of(const Error& error) {
  switch (error.code) {
    case Code::kNotFound:
      return Outcome::kNotFound;
    case Code::kInvalidArgument:
    case Code::kTooLarge:
      return Outcome::kBadRequest;
    case Code::kWrongType:
      return Outcome::kUnexpectedState;
    case Code::kPermission:
    case Code::kRejected:
      return Outcome::kForbidden;
    case Code::kUnsupported:
      return Outcome::kNotImplemented;
    case Code::kBusy:
    case Code::kDisconnected:
    case Code::kStale:
    case Code::kTimeout:
    case Code::kUnreachable:
      return Outcome::kServiceUnavailable;
    default:
      return Outcome::kError;
  }
}

}  // namespace

Store::Store(Cluster client, const StoreSettings& settings)
    : client_(std::move(client)), settings_(settings) {
  buffer_.resize(settings.value_bytes);
}

Answer Store::answer_of(const Error& error) const {
  return {.outcome = outcome_of(error), .error = error};
}

Answer Store::read(std::string_view key) {
  auto got = client_.get_into(key, std::as_writable_bytes(std::span(buffer_)));
  while (!got && got.error().code == Code::kTooLarge) {  // another program loaded longer fields
    buffer_.resize(client_.needed_bytes());
    got = client_.get_into(key, std::as_writable_bytes(std::span(buffer_)));
  }
  read_bytes_ = got ? got->bytes : 0;
  fields_.clear();
  if (!got) return answer_of(got.error());
  version_ = got->version;
  counters_.value_bytes_read += read_bytes_;
  if (!decode_record({buffer_.data(), read_bytes_}, fields_)) {
    return {.outcome = Outcome::kUnexpectedState,
            .error = {.code = Code::kWrongType, .text = "the value is not a kvbench record"}};
  }
  return {};
}

Answer Store::put(std::string_view key, std::string_view value, bool if_read_version) {
  PutOptions options{.durability = settings_.durability};
  if (if_read_version) options.if_version = version_;
  const auto put = client_.put_with(key, value, options);
  if (!put) return answer_of(put.error());
  counters_.value_bytes_written += value.size();
  return {};
}

Answer Store::insert(std::string_view key, const std::vector<std::string_view>& fields) {
  encode_record(fields, spare_);
  return put(key, spare_, false);
}

Answer Store::update(std::string_view key, std::optional<std::size_t> field,
                     const std::vector<std::string_view>& fields) {
  if (!field) return insert(key, fields);
  return change(key, field, fields, false);
}

Answer Store::update_read(std::string_view key, std::optional<std::size_t> field,
                          const std::vector<std::string_view>& fields) {
  return change(key, field, fields, true);
}

Answer Store::change(std::string_view key, std::optional<std::size_t> field,
                     const std::vector<std::string_view>& fields, bool have_read) {
  // Each repetition means that another writer made progress; this limit ends an endless sequence.
  constexpr int kMostTries = 1000;
  Answer answer;
  for (int i = 0; i < kMostTries; ++i) {
    if (!have_read) {
      answer = read(key);
      if (!answer.ok()) return answer;
    }
    have_read = false;
    value_.assign(buffer_.data(), read_bytes_);
    if (!field) {
      encode_record(fields, value_);
    } else if (!replace_field(value_, *field, fields.front(), fields_, spare_)) {
      return {.outcome = Outcome::kUnexpectedState,
              .error = {.code = Code::kWrongType, .text = "the record does not have the field"}};
    }
    answer = put(key, value_, !settings_.plain_updates);
    if (answer.error.code != Code::kConflict) return answer;
    ++counters_.update_conflicts;
  }
  return answer;
}

Answer Store::scan(std::string_view key, std::uint32_t count, std::uint64_t& found) {
  found = 0;
  Scanner scanner(client_, {.start = key, .limit = count});
  for (const ScanEntry& entry : scanner) {
    ++found;
    counters_.value_bytes_read += entry.value.size();
    if (!decode_record(entry.value, fields_)) {
      return {.outcome = Outcome::kUnexpectedState,
              .error = {.code = Code::kWrongType, .text = "the value is not a kvbench record"}};
    }
  }
  counters_.records_scanned += found;
  if (!scanner.status()) return answer_of(scanner.status().error());
  return {};
}

}  // namespace rkv::kvbench
